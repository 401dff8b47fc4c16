// Functions that programs link with or look up, and that an emulated GPU does not have. They take their arguments as
// the caller passes them and look at none.
#include "driver.h"

#define REFUSE(name) \
	EXPORT CUresult name(void); \
	CUresult name(void) { return CUDA_ERROR_NOT_SUPPORTED; }

#define REFUSE_CODE(name) \
	EXPORT CUresult name(void); \
	CUresult name(void) { return no_code(); }

static CUresult no_code(void)
{
	static bool said;
	say_once(&said, "it has memory and no processors: kernels can be neither loaded nor run");
	return CUDA_ERROR_NOT_SUPPORTED;
}

// Code.
REFUSE_CODE(cuModuleLoad)
REFUSE_CODE(cuModuleLoadData)
REFUSE_CODE(cuModuleLoadDataEx)
REFUSE_CODE(cuModuleLoadFatBinary)
REFUSE_CODE(cuModuleGetFunction)
REFUSE_CODE(cuModuleGetGlobal_v2)
REFUSE(cuModuleUnload)
REFUSE_CODE(cuLibraryLoadData)
REFUSE_CODE(cuLibraryLoadFromFile)
REFUSE(cuLibraryUnload)
REFUSE_CODE(cuLaunchKernel)
REFUSE_CODE(cuLaunchKernelEx)
REFUSE_CODE(cuLaunchCooperativeKernel)

// Memory that moves by itself.
REFUSE(cuMemAllocManaged)
REFUSE(cuMemRangeGetAttribute)
REFUSE(cuMemPrefetchAsync)
REFUSE(cuMemAdvise)

// Addresses and memory apart from each other.
REFUSE(cuMemAddressReserve)
REFUSE(cuMemAddressFree)
REFUSE(cuMemCreate)
REFUSE(cuMemRelease)
REFUSE(cuMemMap)
REFUSE(cuMemUnmap)
REFUSE(cuMemSetAccess)
REFUSE(cuMemGetAccess)
REFUSE(cuMemGetAllocationGranularity)
REFUSE(cuMemGetAllocationPropertiesFromHandle)
REFUSE(cuMemRetainAllocationHandle)
REFUSE(cuMemExportToShareableHandle)
REFUSE(cuMemImportFromShareableHandle)

// Pools.
REFUSE(cuMemPoolCreate)
REFUSE(cuMemPoolDestroy)
REFUSE(cuMemPoolSetAccess)
REFUSE(cuMemPoolExportPointer)
REFUSE(cuMemPoolImportPointer)
REFUSE(cuMemPoolExportToShareableHandle)
REFUSE(cuMemPoolImportFromShareableHandle)
REFUSE(cuDeviceGetDefaultMemPool)
REFUSE(cuDeviceGetMemPool)
REFUSE(cuMemAllocAsync)
REFUSE(cuMemAllocFromPoolAsync)
REFUSE(cuMemFreeAsync)

// Sharing with other processes and GPUs.
REFUSE(cuIpcGetMemHandle)
REFUSE(cuIpcOpenMemHandle_v2)
REFUSE(cuIpcCloseMemHandle)
REFUSE(cuIpcGetEventHandle)
REFUSE(cuIpcOpenEventHandle)
REFUSE(cuCtxEnablePeerAccess)
REFUSE(cuCtxDisablePeerAccess)
REFUSE(cuMulticastCreate)
