/*
 * PTX of the kernels that the simulator has built in (kernel.c), for programs that run on it and on
 * a GPU. Launch fill, verify, copy and saxpy with at least one thread per element; the others with
 * one thread.
 *
 *   fill(u32 *p, u32 value, u32 count)              p[i] = value
 *   verify(u32 *p, u32 value, u32 count, u32 *bad)  *bad += number of p[i] != value
 *   copy(u32 *to, const u32 *from, u32 count)       to[i] = from[i]
 *   saxpy(u32 n, f32 a, const f32 *x, f32 *y)       y[i] = a x[i] + y[i]
 *   spin_us(u64 microseconds)                       busy that long
 *   spin_flag(u32 *flag, u32 value)                 until *flag - value >= 0 (as signed)
 *   set_flag(u32 *flag, u32 value)                  *flag = value
 *   fault()                                         CUDA_ERROR_ILLEGAL_ADDRESS
 */
#ifndef SIM_KERNELS_H
#define SIM_KERNELS_H

#define SIM_PTX_INDEX                                                                              \
    " mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"                         \
    " mad.lo.u32 %r4, %r1, %r2, %r3;\n"                                                            \
    " setp.ge.u32 %p1, %r4, %r5; @%p1 bra DONE;\n"                                                 \
    " mul.wide.u32 %d9, %r4, 4;\n"
#define SIM_PTX_REGS " .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %d<16>; .reg .f32 %f<8>;\n"

static const char sim_kernels_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry fill(.param .u64 p, .param .u32 value, .param .u32 count)\n{\n" SIM_PTX_REGS
    " ld.param.u64 %d1, [p]; ld.param.u32 %r6, [value]; ld.param.u32 %r5, [count];\n" SIM_PTX_INDEX
    " add.u64 %d1, %d1, %d9; st.global.u32 [%d1], %r6;\nDONE: ret;\n}\n"
    ".visible .entry verify(.param .u64 p, .param .u32 value, .param .u32 count,"
    " .param .u64 bad)\n{\n" SIM_PTX_REGS
    " ld.param.u64 %d1, [p]; ld.param.u32 %r6, [value]; ld.param.u32 %r5, [count];\n"
    " ld.param.u64 %d2, [bad];\n" SIM_PTX_INDEX
    " add.u64 %d1, %d1, %d9; ld.global.u32 %r7, [%d1];\n"
    " setp.eq.u32 %p2, %r7, %r6; @%p2 bra DONE; red.global.add.u32 [%d2], 1;\nDONE: ret;\n}\n"
    ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 count)\n{\n" SIM_PTX_REGS
    " ld.param.u64 %d1, [to]; ld.param.u64 %d2, [from]; ld.param.u32 %r5, [count];\n" SIM_PTX_INDEX
    " add.u64 %d1, %d1, %d9; add.u64 %d2, %d2, %d9;\n"
    " ld.global.u32 %r7, [%d2]; st.global.u32 [%d1], %r7;\nDONE: ret;\n}\n"
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y)\n"
    "{\n" SIM_PTX_REGS " ld.param.u32 %r5, [n]; ld.param.f32 %f1, [a]; ld.param.u64 %d1, [x];\n"
    " ld.param.u64 %d2, [y];\n" SIM_PTX_INDEX " add.u64 %d1, %d1, %d9; add.u64 %d2, %d2, %d9;\n"
    " ld.global.f32 %f2, [%d1]; ld.global.f32 %f3, [%d2];\n"
    " mul.rn.f32 %f2, %f1, %f2; add.rn.f32 %f3, %f2, %f3; st.global.f32 [%d2], %f3;\n"
    "DONE: ret;\n}\n"
    ".visible .entry spin_us(.param .u64 us)\n{\n" SIM_PTX_REGS
    " ld.param.u64 %d1, [us]; mul.lo.u64 %d1, %d1, 1000; mov.u64 %d2, %globaltimer;\n"
    "AGAIN: mov.u64 %d3, %globaltimer; sub.u64 %d3, %d3, %d2;\n"
    " setp.lt.u64 %p1, %d3, %d1; @%p1 bra AGAIN;\n ret;\n}\n"
    ".visible .entry spin_flag(.param .u64 flag, .param .u32 value)\n{\n" SIM_PTX_REGS
    " ld.param.u64 %d1, [flag]; ld.param.u32 %r1, [value];\n"
    "AGAIN: ld.volatile.global.u32 %r2, [%d1]; sub.u32 %r2, %r2, %r1;\n"
    " setp.lt.s32 %p1, %r2, 0; @%p1 bra AGAIN;\n membar.sys;\n ret;\n}\n"
    ".visible .entry set_flag(.param .u64 flag, .param .u32 value)\n{\n" SIM_PTX_REGS
    " ld.param.u64 %d1, [flag]; ld.param.u32 %r1, [value]; membar.sys;\n"
    " st.volatile.global.u32 [%d1], %r1;\n ret;\n}\n"
    ".visible .entry fault()\n{\n" SIM_PTX_REGS
    " mov.u64 %d1, 16; st.global.u32 [%d1], 1;\n ret;\n}\n";

#endif
