// Prints the addresses of the GPUs that CUDA shows, one a line.
#include <stdio.h>

#include "cuda.h"

int main(void)
{
	int n = 0;
	char address[32];
	if (cuInit(0) == CUDA_ERROR_NO_DEVICE)
		return 0;
	cuDeviceGetCount(&n);
	for (int i = 0; i < n; i++)
		if (!cuDeviceGetPCIBusId(address, sizeof address, i))
			printf("%s\n", address);
	return 0;
}
