/*
 * Tests of MPI for nodes that have no OSU micro-benchmarks. Options and output are theirs as far as rackless uses them:
 *
 *	mpi.c TEST -m FIRST:LAST [-i ITERATIONS] [-x WARMUPS]
 *
 * Each size is twice the one before it. What arrives is checked after the last iteration of a size.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { window = 64 }; /* messages that a sender sends before it waits for an answer */

static int rank, ranks, iterations = 1000, warmups = 10;
static char *out, *in;

/* A mark tells what a rank sends from what the others send. */
static char mark(int of, long size) { return (char)(1 + (of * 31 + size) % 120); }

static void check(const char *from, long bytes, char want)
{
	for (long i = 0; i < bytes; i++)
		if (from[i] != want) {
			printf("DATA VALIDATION ERROR: rank %d, byte %ld: %d, not %d\n", rank, i, from[i], want);
			fflush(stdout);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

/* The first half of the ranks has its peers in the second half, which is on other nodes where there are several. */
static int peer(void) { return rank < ranks / 2 ? rank + ranks / 2 : rank - ranks / 2; }

static double mean(double mine, int of)
{
	double sum;
	MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	return sum / of;
}

static void latency(long size)
{
	int first = rank < ranks / 2;
	double began = 0;
	memset(out, mark(rank, size), size);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = -warmups; i < iterations; i++) {
		if (i == 0)
			began = MPI_Wtime();
		if (first)
			MPI_Send(out, size, MPI_CHAR, peer(), 1, MPI_COMM_WORLD);
		MPI_Recv(in, size, MPI_CHAR, peer(), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (!first)
			MPI_Send(out, size, MPI_CHAR, peer(), 1, MPI_COMM_WORLD);
	}
	double us = mean((MPI_Wtime() - began) * 1e6 / (2.0 * iterations), ranks);
	check(in, size, mark(peer(), size));
	if (rank == 0)
		printf("%-10ld %20.2f\n", size, us);
}

static void bandwidth(long size)
{
	int sends = rank < ranks / 2;
	double began = 0, took;
	MPI_Request all[window];
	memset(out, mark(rank, size), size);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = -warmups; i < iterations; i++) {
		if (i == 0) {
			MPI_Barrier(MPI_COMM_WORLD);
			began = MPI_Wtime();
		}
		for (int w = 0; w < window; w++)
			if (sends)
				MPI_Isend(out, size, MPI_CHAR, peer(), 100, MPI_COMM_WORLD, &all[w]);
			else /* into one place: the bytes are the same */
				MPI_Irecv(in, size, MPI_CHAR, peer(), 100, MPI_COMM_WORLD, &all[w]);
		MPI_Waitall(window, all, MPI_STATUSES_IGNORE);
		char answer = 0;
		if (sends)
			MPI_Recv(&answer, 1, MPI_CHAR, peer(), 101, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(&answer, 1, MPI_CHAR, peer(), 101, MPI_COMM_WORLD);
	}
	took = mean(sends ? MPI_Wtime() - began : 0, ranks / 2);
	if (!sends)
		check(in, size, mark(peer(), size));
	if (rank == 0) {
		double messages = (double)iterations * window * (ranks / 2) / took;
		printf("%-10ld %20.6f %20.2f\n", size, messages * size / 1e6, messages);
	}
}

static void allreduce(long size)
{
	double took = 0;
	int count = size / sizeof(float);
	float *mine = (float *)out, *sum = (float *)in;
	for (int i = 0; i < count; i++)
		mine[i] = rank + i % 7;
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = -warmups; i < iterations; i++) {
		double began = MPI_Wtime();
		MPI_Allreduce(mine, sum, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		if (i >= 0)
			took += MPI_Wtime() - began;
		MPI_Barrier(MPI_COMM_WORLD);
	}
	for (int i = 0; i < count; i++)
		if (sum[i] != ranks * (ranks - 1) / 2 + ranks * (i % 7)) {
			printf("DATA VALIDATION ERROR: rank %d, sum %d: %g\n", rank, i, sum[i]);
			fflush(stdout);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	double us = mean(took * 1e6 / iterations, ranks);
	if (rank == 0)
		printf("%-10ld %20.2f\n", size, us);
}

static void alltoall(long size)
{
	double took = 0;
	for (int r = 0; r < ranks; r++)
		memset(out + r * size, mark(rank + 2 * r, size), size);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = -warmups; i < iterations; i++) {
		double began = MPI_Wtime();
		MPI_Alltoall(out, size, MPI_CHAR, in, size, MPI_CHAR, MPI_COMM_WORLD);
		if (i >= 0)
			took += MPI_Wtime() - began;
		MPI_Barrier(MPI_COMM_WORLD);
	}
	for (int r = 0; r < ranks; r++)
		check(in + r * size, size, mark(r + 2 * rank, size));
	double us = mean(took * 1e6 / iterations, ranks);
	if (rank == 0)
		printf("%-10ld %20.2f\n", size, us);
}

static const struct test {
	const char *name, *title, *columns;
	int pairs; /* takes ranks in pairs */
	void (*run)(long size);
} tests[] = {
	{"multi_lat", "Multi Latency", "  Latency (us)", 1, latency},
	{"mbw_mr", "Multiple Bandwidth / Message Rate", "  MB/s  Messages/s", 1, bandwidth},
	{"allreduce", "Allreduce Latency", "  Avg Latency(us)", 0, allreduce},
	{"alltoall", "All-to-All Personalized Exchange Latency", "  Avg Latency(us)", 0, alltoall},
};

int main(int argc, char **argv)
{
	const struct test *test = NULL;
	long smallest = 1, largest = 65536;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (size_t i = 0; argc > 1 && i < sizeof tests / sizeof *tests; i++)
		if (!strcmp(argv[1], tests[i].name))
			test = &tests[i];
	for (int i = 2; i + 1 < argc; i += 2)
		if (!strcmp(argv[i], "-m"))
			sscanf(argv[i + 1], "%ld:%ld", &smallest, &largest);
		else if (!strcmp(argv[i], "-i"))
			iterations = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "-x"))
			warmups = atoi(argv[i + 1]);
	if (!test || smallest < 1 || largest < smallest || iterations < 1 || warmups < 0 || test->pairs && ranks % 2) {
		if (rank == 0)
			fprintf(stderr, "want a test, sizes and iterations, and an even number of ranks for tests of pairs\n");
		MPI_Finalize();
		return 2;
	}
	out = calloc(ranks, largest);
	in = calloc(ranks, largest);
	if (!out || !in) {
		fprintf(stderr, "no memory for messages of %ld bytes to %d ranks\n", largest, ranks);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	if (rank == 0)
		printf("# rackless MPI %s Test v1\n# Size%s\n", test->title, test->columns);
	for (long size = smallest; size <= largest; size *= 2)
		test->run(size);
	MPI_Finalize();
	return 0;
}
