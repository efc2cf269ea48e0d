/* Attributes of streams: what is set, what is copied, what is refused. */
#include "cu.h"

int main(int argc, char **argv)
{
    CUstream a, b;
    CUstreamAttrValue value = {0};

    cu_start(argc, argv);
    NEED(cuStreamSetAttribute);
    MUST(cuStreamCreate, &a, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreateWithPriority, &b, CU_STREAM_NON_BLOCKING, -1);
    TELL(cuStreamGetAttribute, a, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value);
    cu_say("policy: %d", (int)value.syncPolicy);
    TELL(cuStreamGetAttribute, b, CU_STREAM_ATTRIBUTE_PRIORITY, &value);
    cu_say("priority: %d", value.priority);
    TELL(cuStreamGetAttribute, a, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &value);
    cu_say("domain: %d", (int)value.memSyncDomain);
    TELL(cuStreamGetAttribute, a, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &value);
    cu_say("map: %d %d", value.memSyncDomainMap.default_, value.memSyncDomainMap.remote);
    TELL(cuStreamGetAttribute, a, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value);
    FACT(value.accessPolicyWindow.num_bytes == 0);
    TELL(cuStreamGetAttribute, a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);

    value.syncPolicy = CU_SYNC_POLICY_YIELD;
    TELL(cuStreamSetAttribute, a, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value);
    TELL(cuStreamCopyAttributes, b, a);
    value.syncPolicy = CU_SYNC_POLICY_AUTO;
    TELL(cuStreamGetAttribute, b, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value);
    cu_say("copied policy: %d", (int)value.syncPolicy);
    TELL(cuStreamGetAttribute, b, CU_STREAM_ATTRIBUTE_PRIORITY, &value);
    cu_say("priority after the copy: %d", value.priority);
    value.syncPolicy = (CUsynchronizationPolicy)77;
    TELL(cuStreamSetAttribute, a, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value);
    value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    TELL(cuStreamSetAttribute, a, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &value);
    TELL(cuStreamSetAttribute, a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
    return cu_end();
}
