/* vs_own_stack_run for aarch64 (see own_stack.h). */
        .text
        .globl  vs_own_stack_run
        .hidden vs_own_stack_run
        .type   vs_own_stack_run, %function
        .p2align 4
vs_own_stack_run:
        .cfi_startproc
        hint    #34                     /* bti c */
        stp     x29, x30, [sp, #-16]!
        .cfi_def_cfa_offset 16
        .cfi_offset 29, -16
        .cfi_offset 30, -8
        mov     x29, sp
        .cfi_def_cfa_register 29
        mov     x9, x0
        mov     x0, x1
        mov     sp, x2
        blr     x9
        mov     sp, x29
        .cfi_def_cfa_register 31
        ldp     x29, x30, [sp], #16
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        ret
        .cfi_endproc
        .size   vs_own_stack_run, . - vs_own_stack_run

        .section .note.GNU-stack, "", %progbits
