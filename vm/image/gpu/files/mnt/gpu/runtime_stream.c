#include "runtime.h"

EXPORT cudaError_t cudaStreamCreateWithFlags(CUstream *stream, unsigned flags);
cudaError_t cudaStreamCreateWithFlags(CUstream *stream, unsigned flags)
{
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuStreamCreate(stream, flags));
}

EXPORT cudaError_t cudaStreamCreate(CUstream *stream);
cudaError_t cudaStreamCreate(CUstream *stream) { return cudaStreamCreateWithFlags(stream, 0); }

EXPORT cudaError_t cudaStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
cudaError_t cudaStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	(void)priority;
	return cudaStreamCreateWithFlags(stream, flags);
}

EXPORT cudaError_t cudaStreamDestroy(CUstream stream);
cudaError_t cudaStreamDestroy(CUstream stream) { return runtime_end(cuStreamDestroy(stream)); }

EXPORT cudaError_t cudaStreamSynchronize(CUstream stream);
cudaError_t cudaStreamSynchronize(CUstream stream)
{
	(void)stream;
	return runtime_ready();
}

EXPORT cudaError_t cudaStreamQuery(CUstream stream);
cudaError_t cudaStreamQuery(CUstream stream)
{
	(void)stream;
	return runtime_ready();
}

EXPORT cudaError_t cudaStreamIsCapturing(CUstream stream, int *status);
cudaError_t cudaStreamIsCapturing(CUstream stream, int *status)
{
	(void)stream;
	if (!status)
		return runtime_end(CUDA_ERROR_INVALID_VALUE);
	*status = 0;
	return runtime_ready();
}

EXPORT cudaError_t cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
cudaError_t cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuStreamWaitEvent(stream, event, flags));
}

EXPORT cudaError_t cudaLaunchHostFunc(CUstream stream, CUhostFn function, void *arg);
cudaError_t cudaLaunchHostFunc(CUstream stream, CUhostFn function, void *arg)
{
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuLaunchHostFunc(stream, function, arg));
}

EXPORT cudaError_t cudaEventCreateWithFlags(CUevent *event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(CUevent *event, unsigned flags)
{
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuEventCreate(event, flags));
}

EXPORT cudaError_t cudaEventCreate(CUevent *event);
cudaError_t cudaEventCreate(CUevent *event) { return cudaEventCreateWithFlags(event, 0); }

EXPORT cudaError_t cudaEventDestroy(CUevent event);
cudaError_t cudaEventDestroy(CUevent event) { return runtime_end(cuEventDestroy(event)); }

EXPORT cudaError_t cudaEventRecord(CUevent event, CUstream stream);
cudaError_t cudaEventRecord(CUevent event, CUstream stream)
{
	CUresult r = (CUresult)runtime_ready();
	return runtime_end(r ? r : cuEventRecord(event, stream));
}

EXPORT cudaError_t cudaEventQuery(CUevent event);
cudaError_t cudaEventQuery(CUevent event) { return runtime_end(cuEventQuery(event)); }

EXPORT cudaError_t cudaEventSynchronize(CUevent event);
cudaError_t cudaEventSynchronize(CUevent event) { return runtime_end(cuEventSynchronize(event)); }

EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, CUevent from, CUevent to);
cudaError_t cudaEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
	return runtime_end(cuEventElapsedTime(milliseconds, from, to));
}

// Functions that are not there, and look at no argument.
#define REFUSE(name) \
	EXPORT cudaError_t name(void); \
	cudaError_t name(void) { return runtime_end(CUDA_ERROR_NOT_SUPPORTED); }

// Kernels: libcuda says why there are none. Some programs only ask for the last error afterwards.
cudaError_t cuLaunchKernel(void);
#define REFUSE_CODE(name) \
	EXPORT cudaError_t name(void); \
	cudaError_t name(void) { return runtime_end((CUresult)cuLaunchKernel()); }

REFUSE_CODE(cudaLaunchKernel)
REFUSE_CODE(cudaLaunchKernelExC)
REFUSE_CODE(cudaLaunchCooperativeKernel)
REFUSE_CODE(cudaFuncGetAttributes)
REFUSE_CODE(cudaFuncSetAttribute)
REFUSE_CODE(cudaGetSymbolAddress)
REFUSE_CODE(cudaGetSymbolSize)
REFUSE(cudaMallocManaged)
REFUSE(cudaMallocAsync)
REFUSE(cudaFreeAsync)
REFUSE(cudaMallocFromPoolAsync)
REFUSE(cudaIpcGetMemHandle)
REFUSE(cudaIpcOpenMemHandle)
REFUSE(cudaIpcCloseMemHandle)
REFUSE(cudaDeviceEnablePeerAccess)
REFUSE(cudaDeviceDisablePeerAccess)

// A program with kernels announces them when it starts, before it knows whether it will run one.
EXPORT void **__cudaRegisterFatBinary(void *code);
void **__cudaRegisterFatBinary(void *code)
{
	static void *none[1];
	(void)code;
	return none;
}

#define IGNORE(name) \
	EXPORT void name(void); \
	void name(void) {}

IGNORE(__cudaRegisterFatBinaryEnd)
IGNORE(__cudaUnregisterFatBinary)
IGNORE(__cudaRegisterFunction)
IGNORE(__cudaRegisterVar)
REFUSE(__cudaPopCallConfiguration)
REFUSE(__cudaPushCallConfiguration)
