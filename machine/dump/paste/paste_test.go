package paste

import (
	"bytes"
	"strings"
	"testing"
)

const table = "# size count\n   1024   16\n\n   2048   32\n# done\n"

func before(text, mark string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			b.WriteString(mark)
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestCleanFindsWhatTheToolPrinted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"nothing to do", table, table},
		{"empty", "", ""},
		{"no-break spaces and a byte order mark", "\ufeff00:00.0\u00a0Host\u00a0bridge\n", "00:00.0 Host bridge\n"},
		{"line ends of Windows", strings.ReplaceAll(table, "\n", "\r\n"), table},
		{"colours", "\x1b[1;32mok\x1b[0m\x1b[K\n", "ok\n"},
		{"progress", "  0%\r 50%\r# size\r\n 1\r\n", "# size\n 1\n"},
		{"line ends of an old Mac", "a\rb\r", "a\nb\n"},
		{"a colour as a log writes it", "^[[1mok\\x1b[0m \\e[Kall\n", "ok all\n"},
		{"a path of Windows is no escape", "C:\\eng\\x1\n", "C:\\eng\\x1\n"},
		{"UTF-16", "\xff\xfe0\x00\n\x00\xa0\x00\xb0\x00", "0\n °"},
		{"UTF-16, big-endian", "\xfe\xff\x00a\x00\n", "a\n"},
		{"UTF-16 without a mark", "C\x00P\x00U\x00:\x00\n\x00", "CPU:\n"},
		{"XML of UTF-16",
			"\xff\xfee\x00n\x00c\x00o\x00d\x00i\x00n\x00g\x00=\x00\"\x00U\x00T\x00F\x00-\x001\x006\x00\"\x00",
			`encoding="UTF-8"`},
		{"a text with some zeros", "a\x00b and more text\n", "a\x00b and more text\n"},
		{"dmesg -T", before(table, "[Thu Nov 26 10:00:00 2026] "), table},
		{"mpiexec -prepend-rank", before(table, "[0] "), table},
		{"ranks within a line", "[0] # size time\n[0]    8   -1[0]    1.5 0\n[0]   16   -1[0]    1.6 0\n",
			"# size time\n   8   -1    1.5 0\n  16   -1    1.6 0\n"},
		{"mpirun --tag-output within a line", "[1,0]<stdout>:8 -1[1,0]<stdout>: 1.5\n[1,0]<stdout>:16\n",
			"8 -1 1.5\n16\n"},
		{"channels of a rank of NCCL", before("0[0] -> 1[1] via SHM\n", "[0] "), "0[0] -> 1[1] via SHM\n"},
		{"streams of iperf", "[ ID] Interval\n[101] 0.00-1.00\n[102] 0.00-1.00\n",
			"[ ID] Interval\n[101] 0.00-1.00\n[102] 0.00-1.00\n"},
		{"errors of PCI Express", "[12] Timeout\n[20] UnsupReq (First)\n", "[12] Timeout\n[20] UnsupReq (First)\n"},
		{"a driver's name in each line", "NVRM: a\nNVRM: b\nNVRM: c\n", "NVRM: a\nNVRM: b\nNVRM: c\n"},
		{"a driver's name, indented", "  NVRM: a\n  NVRM: b\n  NVRM: c\n", "NVRM: a\nNVRM: b\nNVRM: c\n"},
		{"indented", before(table, "         "), table},
		{"indented by tabs", before(table, "\t\t"), table},
		{"quoted", before(table, "> "), table},
		{"quoted twice, and indented", before(table, "  >> "), table},
		{"mpirun --tag-output", "a line of mpirun's\n\n" + before(table, "[1,0]<stdout>:"),
			"a line of mpirun's\n\n" + table},
		{"mpirun --timestamp-output", before(table, "Mon Apr 20 11:24:10 2026[1,13]<stdout>:"), table},
		{"Open MPI 5", before(table, "[prterun-node-14-77@1,0]<stdout>:"), table},
		{"srun -l", before(table, " 0: "), table},
		{"srun -l, two ranks", "0: # size\n1: # size\n0:   10\n1:   10\n10: # done\n",
			"# size\n# size\n  10\n  10\n# done\n"},
		{"pdsh", before(table, "gpu-14.cluster: "), table},
		{"kubectl --prefix", before(table, "[pod/nccl-launcher-x7/launcher] "), table},
		{"kubectl --timestamps", before(table, "2026-04-19T11:24:10.123456789Z "), table},
		{"a logger's time", before(table, "2026-04-19 11:24:10,123 "), table},
		{"Python's logging", before(table, "2026-04-19 11:24:10,123 - INFO - "), table},
		{"Python's logging with a name", before(table, "2026-04-19 11:24:10,123 - bench.run - INFO - "), table},
		{"a logger's level", before(table, "2026-04-19 11:24:10 [INFO] "), table},
		{"ts", before(table, "Apr 19 11:24:10 "), table},
		{"ts with a time alone", before(table, "11:24:10 "), table},
		{"a time in brackets", before(table, "[11:24:10.123] "), table},
		{"journalctl", before(table, "Apr  9 11:24:10 gpu14 run.sh[4242]: "), table},
		{"rsyslog", before(table, "2026-04-19T11:24:10.123456+02:00 gpu14 run.sh[4242]: "), table},
		{"containerd", before(table, "2026-04-19T11:24:10.123456789Z stdout F "), table},
		{"docker compose", before(table, "bench-1  | "), table},
		{"torchrun", before(table, "[rank0]: "), table},
		{"torchrun --tee", before(table, "[default0]:"), table},
		{"fences", "Here:\n```console\n" + table + "```\nThanks\n", "Here:\n\n" + table + "\nThanks\n"},
		{"tags of HTML and BBCode", "<details><summary>log</summary>\n<pre>\n1\n</pre>\n[CODE]\n2\n[/CODE]\n",
			"\n\n1\n\n\n2\n\n"},
		{"tags on a line with what was printed", "<pre><code class=\"sh\">a  b\nc</code></pre>\n", "a  b\nc\n"},
		{"the source of a page", "<pre>CA &#39;mlx5_0&#39; ==&gt; &quot;a&quot; &amp; b\n</pre>\n",
			"CA 'mlx5_0' ==> \"a\" & b\n\n"},
		{"the source of a page with XML", "&lt;a b=&quot;1&quot;&gt;\n", "<a b=\"1\">\n"},
		{"entities of XML", "<a b=\"1 &gt; 0\"/>\n", "<a b=\"1 &gt; 0\"/>\n"},
		{"indentation of what a script begins so itself", "  Group: 1\n  Group: 2\n  Group: 3\n",
			"Group: 1\nGroup: 2\nGroup: 3\n"},
		{"grep", before(table, "node1/run.log:"), table},
		{"quotes and hyphens of an editor", "CA \u2018mlx5_0\u2019 \u201ca\u201d 0\u20133 \u2014x\n",
			"CA 'mlx5_0' \"a\" 0-3 --x\n"},
		{"a quoted log of srun in a journal", before(before(table, "3: "), "> Apr 19 11:24:10 gpu14 srun[7]: "), table},
		{"ranks of a launcher, and not of all lines", "0: a\nb\nc\nd\n", "0: a\nb\nc\nd\n"},
		{"addresses are no ranks", "00:1f.0 ISA bridge\n00:1f.2 SATA\n", "00:1f.0 ISA bridge\n00:1f.2 SATA\n"},
		{"groups of a script", "Group:  1  01:00.0\nGroup:  2  02:00.0\nGroup:  3  03:00.0\n",
			"Group:  1  01:00.0\nGroup:  2  02:00.0\nGroup:  3  03:00.0\n"},
		{"devices of ip and rdma", "0: mlx5_0: node_type ca\n1: mlx5_1: node_type ca\n",
			"0: mlx5_0: node_type ca\n1: mlx5_1: node_type ca\n"},
		{"virtual CPUs of virsh", "VCPU: CPU Affinity\n---\n" + strings.Repeat("   0: 0-3\n", 9),
			"VCPU: CPU Affinity\n---\n" + strings.Repeat("   0: 0-3\n", 9)},
		{"nodes of numactl", "node distances:\n" + strings.Repeat("  0:  10  21\n", 8),
			"node distances:\n" + strings.Repeat("  0:  10  21\n", 8)},
		{"addresses with a domain", "0000:00:00.0 Host\n0000:00:01.0 PCI\n0000:00:02.0 VGA\n",
			"0000:00:00.0 Host\n0000:00:01.0 PCI\n0000:00:02.0 VGA\n"},
		{"two lines of a node", "node1: a\nnode1: b\n", "a\nb\n"},
		{"keys of which two are alike", "mode: a\nmode: b\n", "mode: a\nmode: b\n"},
		{"names that begin alike", "node1: a\nnode12: b\nnode13: c\n", "node1: a\nnode12: b\nnode13: c\n"},
		{"details below a head", "82:00.0 NIC\n\tLnkSta: x16\n", "82:00.0 NIC\n\tLnkSta: x16\n"},
		{"a matrix with an empty corner", "\tGPU0\tGPU1\nGPU0\t X\tNV6\n", "\tGPU0\tGPU1\nGPU0\t X\tNV6\n"},
	} {
		if got := string(Clean([]byte(tt.text))); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCleanLeavesItsArgumentAlone(t *testing.T) {
	t.Parallel()
	text := before(table, "> \x1b[1m[1,0]<stdout>:\u00a0")
	in := []byte(text)
	Clean(in)
	if string(in) != text {
		t.Errorf("it became %q", in)
	}
}

func FuzzClean(f *testing.F) {
	f.Add([]byte(before(table, "> 2026-04-19T11:24:10Z [1,0]<stdout>: 0: ")))
	f.Add([]byte("\xff\xfea\x00\n\x00"))
	f.Add([]byte("1%\r2%\r\r\nb\r"))
	f.Add([]byte("\x1b[m\u00a0a: \nb"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := Clean(text)
		text = utf8(text)
		// Errors contain line numbers.
		if !bytes.Contains(text, []byte("\n")) {
			return // from an old Mac
		}
		if a, b := bytes.Count(text, []byte("\n")), bytes.Count(got, []byte("\n")); a != b {
			t.Errorf("%d lines became %d: %q", a, b, got)
		}
		if len(got) > len(text) {
			t.Errorf("%q became longer: %q", text, got)
		}
	})
}
