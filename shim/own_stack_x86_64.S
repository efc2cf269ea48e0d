/* vs_own_stack_run for x86_64 (see own_stack.h). */
        .text
        .globl  vs_own_stack_run
        .hidden vs_own_stack_run
        .type   vs_own_stack_run, @function
        .p2align 4
vs_own_stack_run:
        .cfi_startproc
        endbr64
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        movq    %rdx, %rsp
        movq    %rdi, %rax
        movq    %rsi, %rdi
        call    *%rax
        movq    %rbp, %rsp
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   vs_own_stack_run, . - vs_own_stack_run

        .section .note.GNU-stack, "", %progbits
