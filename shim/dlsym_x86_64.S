/*
 * dlsym and dlvsym for x86_64.
 *
 * The real ones look at their return address: RTLD_NEXT searches behind the caller, RTLD_DEFAULT in
 * the caller's scope. So every look-up that vs_lookup_wants leaves alone must reach the real function
 * by a jump, with registers and stack as they came. The rest goes to vs_lookup_dlsym /
 * vs_lookup_dlvsym (lookup.c), also by a jump.
 */
        .text

        .macro  entry name, real, ours
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), %rdx          /* the caller */
        call    vs_lookup_wants         /* (handle, name, caller) */
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testl   %eax, %eax
        jnz     \ours
1:      movq    \real(%rip), %rax
        testq   %rax, %rax
        jz      2f
        jmp     *%rax
2:      pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        call    vs_lookup_bootstrap     /* never leaves the real ones unset */
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     1b
        .cfi_endproc
        .size   \name, . - \name
        .endm

        .hidden vs_lookup_wants, vs_lookup_bootstrap
        .hidden vs_lookup_dlsym, vs_lookup_dlvsym
        .hidden vs_lookup_real_dlsym, vs_lookup_real_dlvsym

        entry   dlsym, vs_lookup_real_dlsym, vs_lookup_dlsym
        entry   dlvsym, vs_lookup_real_dlvsym, vs_lookup_dlvsym

        .section .note.GNU-stack, "", @progbits
