package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

type scripted map[string]bench.Output

func (l scripted) Exec(_ context.Context, node string, argv []string) (bench.Output, error) {
	if argv[0] == "sh" && strings.HasPrefix(argv[2], "command -v") {
		return bench.Output{}, nil
	}
	out, ok := l[strings.Join(argv, " ")]
	if !ok {
		return bench.Output{}, errors.New(node + " does not know " + strings.Join(argv, " "))
	}
	return out, nil
}

// serverless nodes start no servers.
type serverless struct{ bench.Executor }

func (serverless) Serve(_ context.Context, node string, argv []string, _ <-chan struct{}) (bench.Output, error) {
	return bench.Output{}, fmt.Errorf("nothing needs a server %q on %s", argv, node)
}

func (serverless) ReadFile(_ context.Context, node, path string) ([]byte, error) {
	return nil, fmt.Errorf("nothing needs %s of %s", path, node)
}

func TestEnginesOfOneNodeUseWhatTheyFindThere(t *testing.T) {
	stream := readFile(t, "testdata/stress-ng/recorded-0.15.06-tcg-stream.txt")
	chase := readFile(t, "testdata/lmbench/synthetic-3.0-a9-64MiB.txt")
	oneGPU := bench.Output{Stdout: []byte("GPU 0: NVIDIA H100 (UUID: a)\n")}
	localCopy := bench.Output{Stdout: []byte("Index, Name:\n\tDescription\n=======================\n35, " +
		"device_local_copy:\n\tCopies within a device\n")}
	for _, tt := range []struct {
		engine  string
		opts    bench.Options
		lab     scripted
		command string // or the reason
	}{
		{"sysbench_cpu", bench.Options{Quick: true}, scripted{
			"nproc": {Stdout: []byte("2\n")}, "sysbench --version": {Stdout: []byte("sysbench 1.0.20\n")},
			"sysbench cpu --cpu-max-prime=10000 --threads=2 --time=2 run": {Stdout: readFile(t,
				"testdata/sysbench/recorded-1.0.20-cpu-2threads.txt")},
		}, "sysbench cpu --cpu-max-prime=10000 --threads=2 --time=2 run"},
		{"stress_stream", bench.Options{}, scripted{
			"nproc":               {Stdout: []byte("2\n")},
			"cat /proc/meminfo":   {Stdout: []byte("MemTotal: 211000 kB\nMemAvailable:   117000 kB\n")},
			"stress-ng --version": {Stdout: []byte("stress-ng, version 0.15.06 (gcc 12.2.0)\n")},
			"stress-ng --stream 2 --stream-l3-size 2M -t 6 --metrics": {Stderr: stream},
		}, "stress-ng --stream 2 --stream-l3-size 2M -t 6 --metrics"},
		{"stress_stream", bench.Options{}, scripted{"nproc": {Stdout: []byte("64\n")},
			"cat /proc/meminfo": {Stdout: []byte("MemAvailable:   117000 kB\n")}},
			"attempt 1: n2: stress-ng needs 768 MiB for 64 CPUs; half of what is available is 57 MiB"},
		{"lat_mem_rd", bench.Options{Accelerator: "kvm", Quick: true}, scripted{
			"cat /proc/meminfo":                   {Stdout: []byte("MemAvailable:   180000 kB\n")},
			"lat_mem_rd -P 1 -W 1 -N 1 -t 64 128": {Stderr: chase},
		}, "lat_mem_rd -P 1 -W 1 -N 1 -t 64 128"},
		{"lat_mem_rd", bench.Options{Accelerator: "kvm"}, scripted{
			"cat /proc/meminfo":                    {Stdout: []byte("MemAvailable:   180000000 kB\n")},
			"lat_mem_rd -P 1 -W 1 -N 1 -t 512 128": {Stderr: chase},
		}, `attempt 1: read result of lmbench, line 34 "64.00000 96.302": the table ends with 67108864 bytes, ` +
			`and not with 536870912`},
		{"lat_mem_rd", bench.Options{Bytes: 3 << 24}, scripted{
			"cat /proc/meminfo":                   {Stdout: []byte("MemAvailable:   180000 kB\n")},
			"lat_mem_rd -P 1 -W 1 -N 1 -t 64 128": {Stderr: chase},
		}, "lat_mem_rd -P 1 -W 1 -N 1 -t 64 128"},
		{"lat_mem_rd", bench.Options{}, scripted{
			"cat /proc/meminfo":                  {Stdout: []byte("MemAvailable:   9000 kB\n")},
			"lat_mem_rd -P 1 -W 1 -N 1 -t 4 128": {Stderr: chase},
		}, `attempt 1: read result of lmbench, line 34 "64.00000 96.302": the table ends with 67108864 bytes, ` +
			`and not with 4194304`},
		{"lat_mem_rd", bench.Options{}, scripted{"cat /proc/meminfo": {Stdout: []byte("MemAvailable:   2000 kB\n")}},
			"attempt 1: n2: lmbench needs 1 MiB for 1 CPU; half of what is available is 0 MiB"},
		{"lat_mem_rd/numa0-1", bench.Options{Accelerator: "kvm", Quick: true}, scripted{
			"cat /sys/devices/system/node/node0/cpulist": {Stdout: []byte("0-3\n")},
			"cat /sys/devices/system/node/node1/cpulist": {Stdout: []byte("\n")},
			"taskset -c 0-3 numactl --membind=1 nproc":   {Stdout: []byte("4\n")},
			"cat /sys/devices/system/node/node1/meminfo": {Stdout: []byte(
				"Node 1 MemFree:  180000 kB\nNode 1 Active(file):   10 kB\nNode 1 Inactive(file):  0 kB\n")},
			"taskset -c 0-3 numactl --membind=1 lat_mem_rd -P 1 -W 1 -N 1 -t 64 128": {Stderr: chase},
		}, "taskset -c 0-3 numactl --membind=1 lat_mem_rd -P 1 -W 1 -N 1 -t 64 128"},
		{"stress_stream/numa1", bench.Options{}, scripted{
			"cat /sys/devices/system/node/node1/cpulist": {Stdout: []byte("2-3\n")},
			"taskset -c 2-3 numactl --membind=1 nproc":   {Stdout: []byte("2\n")},
			"cat /sys/devices/system/node/node1/meminfo": {Stdout: []byte("Node 1 MemTotal: 211000 kB\nNode 1 " +
				"MemFree:        90000 kB\nNode 1 Active(file):    7000 kB\nNode 1 Inactive(file): 20000 kB\n")},
			"stress-ng --version": {Stdout: []byte("stress-ng, version 0.15.06 (gcc 12.2.0)\n")},
			"taskset -c 2-3 numactl --membind=1 stress-ng --stream 2 --stream-l3-size 2M -t 6 --metrics": {
				Stderr: stream,
			},
		}, "taskset -c 2-3 numactl --membind=1 stress-ng --stream 2 --stream-l3-size 2M -t 6 --metrics"},
		{"stress_stream/numa3", bench.Options{}, scripted{"cat /sys/devices/system/node/node3/cpulist": {ExitCode: 1}},
			"attempt 1: n2: it has no NUMA node 3"},
		{"stress_stream/numa3", bench.Options{},
			scripted{"cat /sys/devices/system/node/node3/cpulist": {Stdout: []byte("\n")}},
			"attempt 1: n2: its NUMA node 3 has no CPUs"},
		{"gpu_bandwidth_local", bench.Options{}, scripted{"sh -c nvidia-smi -L": {ExitCode: 127}},
			"attempt 1: n2: nvidia-smi -L finds no GPU"},
		{"gpu_bandwidth_local", bench.Options{}, scripted{
			"sh -c nvidia-smi -L": oneGPU,
			"nvbandwidth -l": {Stdout: []byte("Index, Name:\n\tDescription\n=======================\n0, " +
				"host_to_device_memcpy_ce:\n\tHost to device CE memcpy\n")},
		}, "attempt 1: n2: its nvbandwidth has no test case device_local_copy: it takes a later release"},
		{"gpu_bandwidth_local", bench.Options{}, scripted{
			"sh -c nvidia-smi -L": oneGPU, "nvbandwidth -l": localCopy,
			"nvbandwidth -t device_local_copy": {Stdout: readFile(t,
				"testdata/nvbandwidth/synthetic-0.8-device_local_copy.txt")},
		}, "nvbandwidth -t device_local_copy"},
		{"gpu_bandwidth_local", bench.Options{NUMA: "1"}, scripted{
			"sh -c nvidia-smi -L": oneGPU, "nvbandwidth -l": localCopy,
			"numactl --membind=1 nproc": {Stdout: []byte("4\n")},
			"numactl --membind=1 nvbandwidth -t device_local_copy --disableAffinity": {Stdout: readFile(t,
				"testdata/nvbandwidth/synthetic-0.8-device_local_copy.txt")},
		}, "numactl --membind=1 nvbandwidth -t device_local_copy --disableAffinity"},
		{"nccl_all_reduce", bench.Options{}, scripted{"sh -c nvidia-smi -L": {ExitCode: 127}},
			"attempt 1: n2: nvidia-smi -L finds no GPU"},
		{"nccl_all_reduce", bench.Options{}, scripted{"sh -c nvidia-smi -L": oneGPU},
			"attempt 1: n2: it has one GPU, and an all-reduce sends data between two or more: gpu_bandwidth_local " +
				"measures copies within one"},
		{"nccl_all_reduce", bench.Options{}, scripted{
			"sh -c nvidia-smi -L": {Stdout: []byte("GPU 0: NVIDIA H100 (UUID: a)\nGPU 1: NVIDIA H100 (UUID: b)\n")},
			"env NCCL_DEBUG=VERSION all_reduce_perf -b 8 -e 1G -f 2 -g 2": {Stdout: readFile(t,
				"testdata/nccl-tests/dgxc-h100-all_reduce.txt")},
		}, "env NCCL_DEBUG=VERSION all_reduce_perf -b 8 -e 1G -f 2 -g 2"},
	} {
		t.Run(tt.engine+" "+tt.command, func(t *testing.T) {
			samples, err := (&bench.Runner{Exec: serverless{tt.lab}, Retries: -1}).RunLocal(t.Context(),
				mustEngine(t, tt.engine), n2, tt.opts)
			if err != nil || len(samples) == 0 {
				t.Fatalf("%d samples, error %v", len(samples), err)
			}
			s := samples[0]
			if got := s.Error + s.Command; s.Error != tt.command && got != tt.command {
				t.Errorf("got %s, want %s", got, tt.command)
			}
			placement := map[string]string{"lat_mem_rd/numa0-1": "CPUs 0-3, memory of NUMA node 1",
				"stress_stream/numa1": "CPUs 2-3, memory of NUMA node 1"}[tt.engine]
			if tt.command == "numactl --membind=1 nvbandwidth -t device_local_copy --disableAffinity" {
				placement = "memory of NUMA node 1"
			}
			if s.Server != "" || s.ServerCommand != "" || s.Client != "n2" || s.Test != tt.engine ||
				s.Placement != cmp.Or(placement, "not pinned") {
				t.Errorf("%+v", s)
			}
		})
	}
}
