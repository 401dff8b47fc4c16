// Program nccl reads a file for NCCL_TOPO_FILE with NCCL's own code, and prints the path that NCCL sees between each
// GPU and each NIC of it. What NCCL itself would ask a machine for (GPUs, network devices, the model of the CPU) is
// filled in here, as there is none. hack/judges.sh compiles it.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core.h"
#include "graph.h"
#include "topo.h"
#include "xml.h"

static std::vector<std::string> gpus, nics;

// fill adds to each device what NCCL finds out about it.
static ncclResult_t fill(ncclXml* xml, ncclXmlNode* n) {
  int subs = n->nSubs;
  for (int i = 0; i < subs; i++) NCCLCHECK(fill(xml, n->subs[i]));
  if (strcmp(n->name, "cpu") == 0) {
    NCCLCHECK(xmlSetAttr(n, "host_hash", "0x1"));
    NCCLCHECK(xmlSetAttr(n, "vendor", "GenuineIntel"));
    NCCLCHECK(xmlSetAttrInt(n, "familyid", 6));
    NCCLCHECK(xmlSetAttrInt(n, "modelid", 143));
  }
  if (strcmp(n->name, "pci") || subs) return ncclSuccess;
  const char *kind, *address;
  NCCLCHECK(xmlGetAttr(n, "class", &kind));
  NCCLCHECK(xmlGetAttr(n, "busid", &address));
  ncclXmlNode *device, *net;
  if (strncmp(kind, "0x03", 4) == 0) {
    NCCLCHECK(xmlAddNode(xml, n, "gpu", &device));
    NCCLCHECK(xmlSetAttrInt(device, "dev", gpus.size()));
    NCCLCHECK(xmlSetAttrInt(device, "rank", gpus.size()));
    NCCLCHECK(xmlSetAttrInt(device, "sm", 90));
    NCCLCHECK(xmlSetAttrInt(device, "gdr", 1));
    gpus.push_back(address);
  } else if (strncmp(kind, "0x02", 4) == 0) {
    NCCLCHECK(xmlAddNode(xml, n, "nic", &device));
    NCCLCHECK(xmlAddNode(xml, device, "net", &net));
    NCCLCHECK(xmlSetAttr(net, "name", address));
    NCCLCHECK(xmlSetAttrInt(net, "dev", nics.size()));
    NCCLCHECK(xmlSetAttrInt(net, "speed", 200000));
    NCCLCHECK(xmlSetAttrInt(net, "gdr", 1));
    nics.push_back(address);
  }
  return ncclSuccess;
}

static ncclResult_t judge(const char* file) {
  ncclXml* xml;
  NCCLCHECK(xmlAlloc(&xml, 4096));
  NCCLCHECK(ncclTopoGetXmlFromFile(file, xml, 1));
  if (xml->maxIndex == 0) return ncclInvalidArgument;
  NCCLCHECK(fill(xml, &xml->nodes[0]));
  ncclTopoSystem* system;
  NCCLCHECK(ncclTopoGetSystemFromXml(xml, &system, 1));
  NCCLCHECK(ncclTopoComputePaths(system, NULL));
  for (int g = 0; g < system->nodes[GPU].count; g++) {
    ncclTopoNode* gpu = system->nodes[GPU].nodes + g;
    for (int n = 0; n < system->nodes[NET].count; n++) {
      printf("%s %s %s\n", gpus[gpu->gpu.dev].c_str(), nics[system->nodes[NET].nodes[n].net.dev].c_str(),
             topoPathTypeStr[gpu->paths[NET][n].type]);
    }
  }
  return ncclSuccess;
}

int main(int, char** argv) { return judge(argv[1]) == ncclSuccess ? 0 : 1; }

// What the code above calls of the rest of NCCL and of CUDA.
thread_local int ncclDebugNoWarn = 0;
int ncclDebugLevel = NCCL_LOG_INFO;
uint64_t ncclDebugMask = NCCL_GRAPH;

void ncclDebugLogInternal(ncclDebugLogLevel level, unsigned long, const char*, const char*, int, const char* format,
                          ...) {
  if (level == NCCL_LOG_WARN && ncclDebugNoWarn) return;
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
}

const char* ncclEnvPluginGetEnv(const char* name) { return getenv(name); }
ncclResult_t ncclInitEnv(void) { return ncclSuccess; }
extern "C" bool ncclParamIsCacheDisabled(const char*) { return false; }
extern "C" cudaError_t cudaGetLastError() { return cudaSuccess; }
extern "C" cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
