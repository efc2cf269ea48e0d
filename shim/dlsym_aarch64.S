/*
 * dlsym and dlvsym for aarch64; see dlsym_x86_64.S for why they are written by hand.
 */
        .text

        .macro  save
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset 29, -48
        .cfi_offset 30, -40
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        mov     x29, sp
        .endm

        .macro  restore
        ldr     x2, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #48
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        .endm

        .macro  entry name, real, ours
        .globl  \name
        .type   \name, %function
        .p2align 4
\name:
        .cfi_startproc
        hint    #34                     /* bti c */
        save
        mov     x2, x30                 /* the caller */
        bl      vs_lookup_wants         /* (handle, name, caller) */
        mov     w9, w0
        restore
        cbnz    w9, 3f
1:      adrp    x16, \real
        ldr     x16, [x16, #:lo12:\real]
        cbz     x16, 2f
        br      x16
2:      save
        bl      vs_lookup_bootstrap     /* never leaves the real ones unset */
        restore
        b       1b
3:      b       \ours
        .cfi_endproc
        .size   \name, . - \name
        .endm

        .hidden vs_lookup_wants, vs_lookup_bootstrap
        .hidden vs_lookup_dlsym, vs_lookup_dlvsym
        .hidden vs_lookup_real_dlsym, vs_lookup_real_dlvsym

        entry   dlsym, vs_lookup_real_dlsym, vs_lookup_dlsym
        entry   dlvsym, vs_lookup_real_dlvsym, vs_lookup_dlvsym

        .section .note.GNU-stack, "", %progbits
