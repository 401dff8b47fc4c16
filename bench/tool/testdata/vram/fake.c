// In place of libibverbs.so.1 and libcuda.so.1 for vram.py: an adapter with one queue pair, whose number is that of its
// process. It writes to the memory of the other process on this machine. Memory of the GPU is on the heap. With DROP in
// the environment, messages arrive without their bytes.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#define BASE (1ull << 40) // the RDMA address of the dma-buf
#define DMABUF 77
#define RECEIVED 129 // opcode of the completion

struct piece {
	uint64_t address;
	uint32_t length, key;
};
struct request {
	uint64_t id, next;
	struct piece *list;
	int pieces, opcode;
	uint32_t flags, imm;
	uint64_t remote;
};
struct completion {
	uint64_t id;
	int status, opcode;
};

// What the other process has to know is in a file named by the process.
static struct {
	uint64_t arrived, vram;
} mine, theirs;
static volatile uint64_t arrived;
static uint64_t taken, receives, sent, done;
static int peer, state;
static char context[512], object[256];

static FILE *shared(int process, const char *mode)
{
	char name[256];
	snprintf(name, sizeof name, "%s/%d", getenv("FAKE"), process);
	return fopen(name, mode);
}

static void move(int write, void *here, uint64_t there, size_t size)
{
	struct iovec local = {here, size}, remote = {(void *)there, size};
	ssize_t n = write ? process_vm_writev(peer, &local, 1, &remote, 1, 0)
			  : process_vm_readv(peer, &local, 1, &remote, 1, 0);
	if (n != (ssize_t)size) {
		perror("memory of the other process");
		exit(9);
	}
}

static int poll(void *cq, int n, struct completion *c)
{
	*c = (struct completion){0};
	if (done < sent) {
		done++;
		return 1;
	}
	if (taken == arrived)
		return 0;
	if (taken++ >= receives)
		exit(8); // receiver not ready
	c->opcode = RECEIVED;
	return 1;
}

static int post_send(void *qp, struct request *r, void *bad)
{
	if (r->pieces && !getenv("DROP")) {
		uint64_t from = r->list->address, to = r->remote;
		move(1, (void *)(from >= BASE && from < 2 * BASE ? from - BASE + mine.vram : from),
			to >= BASE && to < 2 * BASE ? to - BASE + theirs.vram : to, r->list->length);
	}
	uint64_t n;
	move(0, &n, theirs.arrived, sizeof n); // only this process writes it
	n++;
	move(1, &n, theirs.arrived, sizeof n);
	sent++;
	return 0;
}

static int post_receive(void *qp, void *r, void *bad)
{
	receives++;
	return state ? 0 : EINVAL;
}

void **ibv_get_device_list(int *n)
{
	static void *list[2] = {object};
	*n = 1;
	return list;
}

const char *ibv_get_device_name(void *device) { return "mlx5_0"; }

void *ibv_open_device(void *device)
{
	*(void **)(context + 96) = poll;
	*(void **)(context + 208) = post_send;
	*(void **)(context + 216) = post_receive;
	return context;
}

void *ibv_alloc_pd(void *c) { return object; }
void *ibv_create_cq(void *c, int n, void *a, void *b, int vector) { return object; }

int ibv_query_gid(void *c, uint8_t port, int index, void *gid)
{
	memset(gid, index, 16);
	return 0;
}

int ibv_query_port(void *c, uint8_t port, int *attributes)
{
	attributes[2] = 5; // MTU 4096
	return 0;
}

void *ibv_create_qp(void *pd, void *init)
{
	*(uint32_t *)(object + 52) = (uint32_t)getpid();
	return object;
}

int ibv_modify_qp(void *qp, char *attributes, int mask)
{
	state = *(int *)attributes;
	if (state != 2) // ready to receive
		return 0;
	peer = *(int *)(attributes + 28);
	FILE *f = shared(peer, "r");
	int ok = f && fread(&theirs, sizeof theirs, 1, f) == 1;
	if (f)
		fclose(f);
	return !ok;
}

static void *region(void)
{
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	mine.arrived = (uint64_t)&arrived;
	FILE *f = shared(getpid(), "w");
	if (!f || fwrite(&mine, sizeof mine, 1, f) != 1 || fclose(f))
		return NULL;
	return object;
}

void *ibv_reg_mr(void *pd, void *start, size_t size, int access) { return region(); }

void *ibv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t size, uint64_t address, int fd, int access)
{
	return address == BASE && fd == DMABUF ? region() : NULL;
}

int cuInit(unsigned flags) { return 0; }

int cuDeviceGet(int *device, int number)
{
	*device = number;
	return number ? 101 : 0;
}

int cuCtxCreate_v2(void **c, unsigned flags, int device)
{
	*c = context;
	return 0;
}

int cuMemAlloc_v2(uint64_t *pointer, size_t size)
{
	*pointer = mine.vram = (uint64_t)malloc(size);
	return 0;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size)
{
	memcpy((void *)to, from, size);
	return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
	memcpy(to, (void *)from, size);
	return 0;
}

int cuMemGetHandleForAddressRange(int *fd, uint64_t pointer, size_t size, int type, unsigned long long flags)
{
	*fd = DMABUF;
	return type == 1 && pointer == mine.vram ? 0 : 1;
}
