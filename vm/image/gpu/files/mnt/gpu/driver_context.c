#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

// A context is kept when it is destroyed: threads may still have it as their current one.
struct CUctx_st {
	CUdevice device;
	unsigned flags;
	unsigned long long id;
	bool destroyed;
	struct CUctx_st *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st *contexts;
static struct {
	CUcontext context;
	unsigned flags;
	int users;
} primary[GPU_MAX];

// The contexts of a thread; the last one is current.
#define STACK_MAX 256
static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local int depth;

// valid is called with the lock.
static bool valid(CUcontext context)
{
	for (struct CUctx_st *c = contexts; c; c = c->next)
		if (c == context)
			return !c->destroyed;
	return false;
}

static bool is_valid(CUcontext context)
{
	pthread_mutex_lock(&lock);
	bool ok = valid(context);
	pthread_mutex_unlock(&lock);
	return ok;
}

CUcontext context_current(void)
{
	CUcontext c = depth ? stack[depth - 1] : NULL;
	return c && is_valid(c) ? c : NULL;
}

CUdevice context_device(CUcontext context) { return context->device; }

// make is called with the lock.
static CUcontext make(CUdevice device, unsigned flags)
{
	static unsigned long long last;
	CUcontext c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	*c = (struct CUctx_st){.device = device, .flags = flags, .id = ++last, .next = contexts};
	contexts = c;
	return c;
}

static CUresult check(CUdevice device)
{
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!device_at(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (device_node(device) >= 0)
		return CUDA_SUCCESS;
	static bool said;
	say_once(&said, "cannot open the GPU's file in /dev/dri");
	return CUDA_ERROR_OPERATING_SYSTEM;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	CUresult r = check(device);
	if (r)
		return r;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	*context = make(device, flags);
	pthread_mutex_unlock(&lock);
	return *context ? cuCtxPushCurrent_v2(*context) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(CUcontext context)
{
	pthread_mutex_lock(&lock);
	bool ok = valid(context);
	if (ok)
		context->destroyed = true;
	pthread_mutex_unlock(&lock);
	if (!ok)
		return CUDA_ERROR_INVALID_CONTEXT;
	memory_release(context);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	CUresult r = destroy(context);
	if (!r && depth && stack[depth - 1] == context)
		depth--;
	return r;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (context && !is_valid(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth)
		depth--;
	return context ? cuCtxPushCurrent_v2(context) : CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = context_current();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	if (!is_valid(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = stack[depth];
	return CUDA_SUCCESS;
}

// current sets context to the current one, or returns the error of a call that needs one and a place for the answer.
static CUresult current(CUcontext *context, const void *answer)
{
	if (device_count() < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	*context = context_current();
	if (!*context)
		return CUDA_ERROR_INVALID_CONTEXT;
	return answer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	CUcontext c;
	CUresult r = current(&c, device);
	if (!r)
		*device = c->device;
	return r;
}

EXPORT CUresult cuCtxGetFlags(unsigned *flags)
{
	CUcontext c;
	CUresult r = current(&c, flags);
	if (!r)
		*flags = c->flags;
	return r;
}

EXPORT CUresult cuCtxSetFlags(unsigned flags)
{
	CUcontext c;
	CUresult r = current(&c, &flags);
	if (!r)
		c->flags = flags;
	return r;
}

EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
	CUcontext c = context;
	CUresult r = context ? CUDA_SUCCESS : current(&c, id);
	if (!r && (!id || !is_valid(c)))
		r = id ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		*id = c->id;
	return r;
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	if (context && !is_valid(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	*version = 3020; // of contexts, as cuCtxCreate_v2 makes them
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
	CUcontext c;
	return current(&c, &c); // all that was asked is done
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult r = check(device);
	if (r)
		return r;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (!primary[device].context)
		primary[device].context = make(device, primary[device].flags);
	if (primary[device].context)
		primary[device].users++;
	*context = primary[device].context;
	pthread_mutex_unlock(&lock);
	return *context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// end destroys the primary context of a device if it has at most so many users.
static CUresult end(CUdevice device, int users)
{
	if (!device_at(device))
		return device_count() < 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_DEVICE;
	CUcontext gone = NULL;
	CUresult r = CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	if (!primary[device].context && users == 1)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (primary[device].users <= users) {
		gone = primary[device].context;
		primary[device].context = NULL;
		primary[device].users = 0;
	} else
		primary[device].users--;
	pthread_mutex_unlock(&lock);
	return gone ? destroy(gone) : r;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return end(device, 1); }
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return end(device, __INT_MAX__); }

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
	if (!device_at(device))
		return device_count() < 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	primary[device].flags = flags;
	if (primary[device].context)
		primary[device].context->flags = flags;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	if (!device_at(device))
		return device_count() < 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	if (flags)
		*flags = primary[device].flags;
	if (active)
		*active = primary[device].context != NULL;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

void say_once(bool *said, const char *message)
{
	pthread_mutex_lock(&lock);
	bool first = !*said;
	*said = true;
	pthread_mutex_unlock(&lock);
	if (first)
		fprintf(stderr, "%s: %s\n", GPU_NAME, message);
}
