// Streams and events. Work is done when it is asked for, so no stream ever has any left and events have all happened.
#include <stdlib.h>
#include <time.h>

#include "driver.h"

struct CUstream_st {
	CUcontext context;
};

struct CUevent_st {
	unsigned flags;
	bool recorded;
	struct timespec at;
};

// ready returns the error of a call that needs a current context.
static CUresult ready(void)
{
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	return context_current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	CUresult r = ready();
	if (r)
		return r;
	if (!stream || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	*stream = malloc(sizeof **stream);
	if (!*stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*stream)->context = context_current();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	(void)priority;
	return cuStreamCreate(stream, flags);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
	if ((uintptr_t)stream <= 2) // the default streams are no addresses
		return CUDA_ERROR_INVALID_HANDLE;
	free(stream);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	(void)stream;
	return ready();
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
	(void)stream;
	return ready();
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	(void)stream;
	(void)flags;
	return event ? ready() : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *arg, unsigned flags)
{
	CUresult r = ready();
	if (r)
		return r;
	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	callback(stream, CUDA_SUCCESS, arg);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *arg)
{
	(void)stream;
	CUresult r = ready();
	if (r)
		return r;
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	function(arg);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags)
{
	CUresult r = ready();
	if (r)
		return r;
	if (!event)
		return CUDA_ERROR_INVALID_VALUE;
	*event = calloc(1, sizeof **event);
	if (!*event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*event)->flags = flags;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	free(event);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	(void)stream;
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult r = ready();
	if (r)
		return r;
	event->recorded = true;
	clock_gettime(CLOCK_MONOTONIC, &event->at);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventQuery(CUevent event) { return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }
EXPORT CUresult cuEventSynchronize(CUevent event) { return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
	if (!milliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	if (!from || !to || !from->recorded || !to->recorded || (from->flags | to->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	*milliseconds = (float)((double)(to->at.tv_sec - from->at.tv_sec) * 1e3 +
		(double)(to->at.tv_nsec - from->at.tv_nsec) / 1e6);
	return CUDA_SUCCESS;
}
