package cgroup

import (
	"testing"
	"testing/fstest"
)

func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

func TestLimit(t *testing.T) {
	const v1, v2 = "sys/fs/cgroup/pids/", "sys/fs/cgroup/"
	tests := []struct {
		name  string
		root  fstest.MapFS
		limit int64
		where string
	}{
		{"no control groups", files(), 0, ""},
		{"version 2, the own group", files("proc/self/cgroup", "0::/a/b\n", v2+"a/b/pids.max", "100\n"), 100,
			"cgroup /sys/fs/cgroup/a/b"},
		{"version 2, a parent has less", files("proc/self/cgroup", "0::/a/b\n", v2+"a/b/pids.max", "100\n",
			v2+"a/pids.max", "50\n"), 50, "cgroup /sys/fs/cgroup/a"},
		{"version 2, no limit", files("proc/self/cgroup", "0::/a\n", v2+"a/pids.max", "max\n"), 0, ""},
		{"version 2, the root", files("proc/self/cgroup", "0::/\n", v2+"pids.max", "7\n"), 7, "cgroup /sys/fs/cgroup"},
		{"version 1", files("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:pids:/a\n0::/\n", v1+"a/pids.max", "9\n",
			v2+"pids.max", "1\n"), 9, "cgroup /sys/fs/cgroup/pids/a"},
		{"a namespace hides the group, its root counts", files("proc/self/cgroup", "4:pids:/docker/x\n", v1+"pids.max",
			"9\n"), 9, "cgroup /sys/fs/cgroup/pids"},
		{"nonsense is no limit", files("proc/self/cgroup", "0::/a\nnonsense\n", v2+"a/pids.max", "many\n"), 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit, where, ok := Limit(tt.root, "pids", "pids.max", "pids.max")
			if limit != tt.limit || where != tt.where || ok != (tt.where != "") {
				t.Errorf("got %d, %q, %v, want %d, %q", limit, where, ok, tt.limit, tt.where)
			}
		})
	}
}

func TestMemory(t *testing.T) {
	tests := []struct {
		name        string
		root        fstest.MapFS
		limit, used int64
	}{
		{"no limit", files("proc/self/cgroup", "0::/\n"), 0, 0},
		{"version 2, page cache is not in use", files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max",
			"1000\n",
			"sys/fs/cgroup/a/memory.current", "600\n", "sys/fs/cgroup/a/memory.stat",
			"anon 300\nactive_file 100\ninactive_file 200\n"), 1000, 300},
		{"version 1", files("proc/self/cgroup", "3:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
			"1000\n",
			"sys/fs/cgroup/memory/a/memory.usage_in_bytes", "600\n"), 1000, 600},
		{"version 1 says no limit with a large number", files("proc/self/cgroup", "3:memory:/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"), 0, 0},
		{"use is not known", files("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/memory.max", "5\n"), 5, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit, used, _, ok := Memory(tt.root)
			if limit != tt.limit || used != tt.used || ok != (tt.limit > 0) {
				t.Errorf("got %d, %d, %v, want %d, %d", limit, used, ok, tt.limit, tt.used)
			}
		})
	}
}
