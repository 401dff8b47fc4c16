// Checks of libcudart on the machine of driver.c. It is compiled against declarations of its own, as programs are.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int failures;

#define WANT(condition) \
	do { \
		if (!(condition)) { \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			failures++; \
		} \
	} while (0)

struct attributes {
	int type, device;
	void *device_pointer, *host_pointer;
};
int cudaGetDeviceCount(int *);
int cudaSetDevice(int);
int cudaGetDevice(int *);
int cudaGetDeviceProperties_v2(void *, int);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyBatchAsync(void **, void **, size_t *, size_t, void *, size_t *, size_t, size_t *, void *);
int cudaMemset(void *, int, size_t);
int cudaPointerGetAttributes(struct attributes *, const void *);
int cudaStreamCreateWithFlags(void **, unsigned);
int cudaStreamSynchronize(void *);
int cudaStreamDestroy(void *);
int cudaLaunchKernel(const void *);
int cudaIpcGetMemHandle(void *, void *);
int cudaGetLastError(void);
const char *cudaGetErrorString(int);
void **__cudaRegisterFatBinary(void *);

static void *thread(void *device) // each thread has its own device
{
	int d = -1;
	void *p = NULL;
	struct attributes a;
	WANT(!cudaGetDevice(&d) && d == 0);
	WANT(!cudaSetDevice(*(int *)device) && !cudaMalloc(&p, 4096) && !cudaPointerGetAttributes(&a, p) && a.device == 1);
	WANT(!cudaFree(p));
	return NULL;
}

int main(void)
{
	int n = 0, one = 1, d = -1;
	void *p = NULL, *q = NULL, *stream = NULL;
	char properties[1032 + 8], out[100] = "bytes", in[100] = "", in2[100] = "";
	struct attributes a;
	size_t failed = 9, sizes[] = {100, 100};
	pthread_t t;

	WANT(__cudaRegisterFatBinary(NULL) != NULL);
	WANT(!cudaGetDeviceCount(&n) && n == 2);
	memset(properties, 0x55, sizeof properties);
	WANT(!cudaGetDeviceProperties_v2(properties, 1) && !strcmp(properties, "rackless emulated H20"));
	WANT(!memcmp(properties + 584, "\x84\0\0\0", 4) && properties[748] == 1);
	WANT(properties[1031] == 0 && properties[1032] == 0x55);
	WANT(cudaGetDeviceProperties_v2(properties, 2) == 101 && cudaGetLastError() == 101 && cudaGetLastError() == 0);
	WANT(!cudaFree(NULL) && !cudaGetDevice(&d) && d == 0);
	pthread_create(&t, NULL, thread, &one);
	pthread_join(t, NULL);
	WANT(!cudaMalloc(&p, sizeof out) && !cudaMalloc(&q, sizeof out));
	WANT(!cudaMemcpy(p, out, sizeof out, 1) && !cudaMemcpy(q, p, sizeof out, 3) && !cudaMemcpy(in, q, sizeof in, 4));
	WANT(!strcmp(in, "bytes") && !cudaMemset(q, 'x', 2));
	WANT(!cudaMemcpyBatchAsync((void *[]){in, in2}, (void *[]){p, q}, sizes, 2, NULL, NULL, 0, &failed, NULL));
	WANT(!strcmp(in, "bytes") && !strcmp(in2, "xxtes") && failed == 9);
	WANT(cudaMemcpyBatchAsync((void *[]){in, in2}, (void *[]){p, NULL}, sizes, 2, NULL, NULL, 0, &failed, NULL));
	WANT(failed == 1);
	WANT(!cudaPointerGetAttributes(&a, p) && a.type == 2 && a.device == 0 && a.device_pointer == p && !a.host_pointer);
	WANT(!cudaPointerGetAttributes(&a, in) && a.type == 0 && a.device == -2);
	WANT(!cudaStreamCreateWithFlags(&stream, 1) && !cudaStreamSynchronize(stream) && !cudaStreamDestroy(stream));
	WANT(cudaStreamDestroy((void *)1) == 400);
	WANT(cudaMalloc(&p, (size_t)1 << 40) == 2);
	WANT(cudaIpcGetMemHandle(in, q) == 801);
	(void)cudaGetLastError();
	WANT(cudaLaunchKernel(thread) == 801 && cudaGetLastError() == 801);
	WANT(strstr(cudaGetErrorString(801), "rackless emulated GPU") != NULL);
	return failures ? 1 : 0;
}
