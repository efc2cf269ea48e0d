/*
 * The kernels that conformance programs launch, as PTX for the GPU. The simulator has them built
 * in under the same names, and takes the names from this text.
 */
#ifndef VS_TESTS_CONFORMANCE_KERNELS_H
#define VS_TESTS_CONFORMANCE_KERNELS_H

/* fill(uint32_t *p, uint32_t value, uint32_t count): p[i] = value for every i below count. */
static const char kernels_ptx[] = ".version 6.0\n"
                                  ".target sm_50\n"
                                  ".address_size 64\n"
                                  ".visible .entry fill(\n"
                                  "    .param .u64 p, .param .u32 value, .param .u32 count)\n"
                                  "{\n"
                                  "    .reg .pred %out;\n"
                                  "    .reg .b32 %v, %n, %i, %b, %t, %w;\n"
                                  "    .reg .b64 %a, %o;\n"
                                  "    ld.param.u64 %a, [p];\n"
                                  "    ld.param.u32 %v, [value];\n"
                                  "    ld.param.u32 %n, [count];\n"
                                  "    mov.u32 %b, %ctaid.x;\n"
                                  "    mov.u32 %w, %ntid.x;\n"
                                  "    mov.u32 %t, %tid.x;\n"
                                  "    mad.lo.u32 %i, %b, %w, %t;\n"
                                  "    setp.ge.u32 %out, %i, %n;\n"
                                  "    @%out bra DONE;\n"
                                  "    cvta.to.global.u64 %a, %a;\n"
                                  "    mul.wide.u32 %o, %i, 4;\n"
                                  "    add.u64 %a, %a, %o;\n"
                                  "    st.global.u32 [%a], %v;\n"
                                  "DONE:\n"
                                  "    ret;\n"
                                  "}\n";

#endif
