/*
 * The time of an all-reduce over all ranks by Gloo, by RDMA or TCP. MPI starts the ranks and exchanges Gloo's addresses.
 * Options and output are those of mpi.c.
 *
 *	gloo.cc -m FIRST:LAST [-i ITERATIONS] [-x WARMUPS]
 *
 * RACKLESS_NODES has NODE=ADDRESS=DEVICE=GID for each node, with commas between them; no device stands for TCP.
 */
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gloo/allreduce_ring_chunked.h>
#include <gloo/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

/* The device of this node. */
static std::shared_ptr<gloo::transport::Device> device()
{
	char host[256] = "";
	gethostname(host, sizeof host - 1);
	const char *all = getenv("RACKLESS_NODES");
	std::istringstream nodes(all ? all : "");
	for (std::string node; std::getline(nodes, node, ',');) {
		std::istringstream fields(node);
		std::string name, address, rdma, gid;
		std::getline(fields, name, '=');
		std::getline(fields, address, '=');
		std::getline(fields, rdma, '=');
		std::getline(fields, gid, '=');
		if (name != host)
			continue;
		if (rdma.empty()) {
			gloo::transport::tcp::attr at;
			at.hostname = address;
			return gloo::transport::tcp::CreateDevice(at);
		}
		gloo::transport::ibverbs::attr at;
		at.name = rdma;
		at.port = 1;
		at.index = atoi(gid.c_str());
		return gloo::transport::ibverbs::CreateDevice(at);
	}
	throw std::runtime_error(std::string("RACKLESS_NODES has no node ") + host);
}

/* A mesh connects each rank with each other one. */
struct mesh : gloo::Context {
	mesh(int rank, int ranks, std::shared_ptr<gloo::transport::Device> dev) : gloo::Context(rank, ranks)
	{
		auto made = dev->createContext(rank, ranks);
		made->setTimeout(getTimeout());
		std::vector<std::vector<char>> mine(ranks);
		unsigned long length = 0;
		for (int i = 0; i < ranks; i++)
			if (i != rank) {
				mine[i] = made->createPair(i)->address().bytes();
				length = std::max<unsigned long>(length, mine[i].size());
			}
		MPI_Allreduce(MPI_IN_PLACE, &length, 1, MPI_UNSIGNED_LONG, MPI_MAX, MPI_COMM_WORLD);
		std::vector<char> out(ranks * length), in(ranks * length);
		for (int i = 0; i < ranks; i++)
			std::copy(mine[i].begin(), mine[i].end(), out.begin() + i * length);
		MPI_Alltoall(out.data(), length, MPI_CHAR, in.data(), length, MPI_CHAR, MPI_COMM_WORLD);
		for (int i = 0; i < ranks; i++)
			if (i != rank)
				made->getPair(i)->connect(std::vector<char>(in.begin() + i * length,
					in.begin() + (i + 1) * length));
		MPI_Barrier(MPI_COMM_WORLD); /* what is sent to a rank that has not connected is lost */
		device_ = dev;
		transportContext_ = std::move(made);
	}
};

int main(int argc, char **argv)
{
	int rank, ranks, iterations = 1000, warmups = 10;
	long smallest = 4, largest = 65536;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 1; i + 1 < argc; i += 2)
		if (!strcmp(argv[i], "-m"))
			sscanf(argv[i + 1], "%ld:%ld", &smallest, &largest);
		else if (!strcmp(argv[i], "-i"))
			iterations = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "-x"))
			warmups = atoi(argv[i + 1]);
	try {
		auto all = std::make_shared<mesh>(rank, ranks, device());
		if (rank == 0)
			printf("# rackless Gloo Allreduce Latency Test v1\n# Size  Avg Latency(us)\n");
		for (long size = smallest; size <= largest; size *= 2) {
			std::vector<float> values(size / sizeof(float));
			gloo::AllreduceRingChunked<float> reduce(all, {values.data()}, values.size());
			double took = 0;
			for (int i = -warmups; i < iterations; i++) {
				for (size_t k = 0; k < values.size(); k++)
					values[k] = rank + k % 7;
				MPI_Barrier(MPI_COMM_WORLD);
				double began = MPI_Wtime();
				reduce.run();
				if (i >= 0)
					took += MPI_Wtime() - began;
			}
			for (size_t k = 0; k < values.size(); k++)
				if (values[k] != ranks * (ranks - 1) / 2 + ranks * (k % 7)) {
					printf("DATA VALIDATION ERROR: rank %d, sum %zu: %g\n", rank, k, values[k]);
					fflush(stdout);
					MPI_Abort(MPI_COMM_WORLD, 1);
				}
			double us = took * 1e6 / iterations / ranks, sum;
			MPI_Reduce(&us, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
			if (rank == 0)
				printf("%-10ld %20.2f\n", size, sum);
			MPI_Barrier(MPI_COMM_WORLD); /* the buffers of this size go */
		}
	} catch (const std::exception &e) {
		fprintf(stderr, "Gloo: %s\n", e.what());
		fflush(stderr);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	fflush(stdout);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	_exit(0); /* Gloo's threads */
}
