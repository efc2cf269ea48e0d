/*
 * A call on a stack of our own: for work that the program did not ask for, on a thread whose stack
 * may be as small as that of a signal handler.
 */
#ifndef VS_SHIM_OWN_STACK_H
#define VS_SHIM_OWN_STACK_H

/* Calls run(arg) with the stack that ends at top, a multiple of 16. */
void vs_own_stack_run(void (*run)(void *), void *arg, void *top);

#endif
