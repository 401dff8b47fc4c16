package smi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/topology"
)

var sameFacts = cmp.Options{
	cmpopts.IgnoreFields(smi.Matrix{}, "Line", "Notes"),
	cmpopts.IgnoreFields(smi.Device{}, "Line"),
}

func expandTabs(text string) string {
	var b strings.Builder
	col := 0
	for _, r := range text {
		switch r {
		case '\n':
			b.WriteRune(r)
			col = 0
		case '\t':
			n := 8 - col%8
			b.WriteString(strings.Repeat(" ", n))
			col += n
		default:
			b.WriteRune(r)
			col++
		}
	}
	return b.String()
}

func eachLine(text string, f func(string) string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = f(l)
	}
	return strings.Join(lines, "\n")
}

func wrap(text string, width int, trim bool) string {
	return eachLine(text, func(l string) string {
		var parts []string
		for len(l) > width {
			parts = append(parts, l[:width])
			l = l[width:]
		}
		parts = append(parts, l)
		if trim {
			for i := range parts {
				parts[i] = strings.TrimRight(parts[i], " ")
			}
		}
		return strings.Join(parts, "\n")
	})
}

func plainText(t testing.TB, f string) string {
	t.Helper()
	s := strings.NewReplacer("\x1b[4m", "", "\x1b[0m", "").Replace(string(readFile(t, f)))
	return expandTabs(s)
}

func TestLayoutsSayTheSame(t *testing.T) {
	t.Parallel()
	type layout struct {
		name string
		make func(string) string
	}
	layouts := []layout{
		{"spaces for tabs", func(s string) string { return s }},
		{"DOS line ends", func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }},
		{"no break at the end", strings.TrimSpace},
		{"white space at line ends cut off", func(s string) string {
			return eachLine(s, func(l string) string { return strings.TrimRight(l, " ") })
		}},
		{"runs of spaces made one", func(s string) string {
			return eachLine(s, func(l string) string { return strings.Join(strings.Fields(l), " ") })
		}},
		{"a quote", func(s string) string { return eachLine(s, func(l string) string { return "> " + l }) }},
		{"a quote in a quote", func(s string) string {
			return eachLine(s, func(l string) string { return ">> " + l })
		}},
		{"a code block", func(s string) string {
			return "text before\n```bash\n$ nvidia-smi topo -m\n" + s + "```\ntext after\n"
		}},
		{"a table", func(s string) string {
			return eachLine(s, func(l string) string { return "| " + strings.ReplaceAll(l, "  ", " | ") + " |" })
		}},
		{"names of hosts before the lines", func(s string) string {
			return eachLine(s, func(l string) string { return "node-17: " + l })
		}},
		{"ranks before the lines", func(s string) string {
			return eachLine(s, func(l string) string { return "[1,0]<stdout>:" + l })
		}},
		{"line numbers of grep", func(s string) string {
			n := 0
			return eachLine(s, func(l string) string { n++; return fmt.Sprintf("%d:%s", n, l) })
		}},
		{"a log with times", func(s string) string {
			return eachLine(s, func(l string) string { return "2025-03-01 12:00:00,123 INFO " + l })
		}},
		{"colours without their escape character", func(s string) string {
			return strings.Replace(s, "GPU0", "[4mGPU0", 1)
		}},
		{"colours in the notation of cat -v", func(s string) string {
			return strings.Replace(s, "GPU0", "^[[4m^[[1;32mGPU0^[[0m", 1)
		}},
		{"no-break spaces", func(s string) string { return strings.ReplaceAll(s, "  ", "\u00a0 ") }},
		{"a byte order mark", func(s string) string { return "\ufeff" + s }},
		{"indented", func(s string) string { return eachLine(s, func(l string) string { return "      " + l }) }},
		{"twice", func(s string) string { return s + "\n\n" + s }},
		{"the header's start lost", strings.TrimSpace},
		{"empty lines between", func(s string) string { return strings.ReplaceAll(s, "\n", "\n\n") }},
		{"no header line", func(s string) string { _, rest, _ := strings.Cut(s, "\n"); return rest }},
		{"the header announced", func(s string) string {
			head, _, _ := strings.Cut(s, "\n")
			return "topology: " + head + "\n```\n" + s
		}},
	}
	for _, f := range fixtures(t) {
		text := plainText(t, f)
		want, err := smi.ParseMatrix(readFile(t, f))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range layouts {
			t.Run(f+"/"+l.name, func(t *testing.T) {
				got, err := smi.ParseMatrix([]byte(l.make(text)))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, sameFacts); diff != "" {
					t.Errorf("(-want +got):\n%s\n%s", diff, l.make(text))
				}
			})
		}
	}
}

// TestBrokenLinesAreNotReadWrongly breaks every fixture at every terminal width. Paths that are read must be right.
func TestBrokenLinesAreNotReadWrongly(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures(t) {
		text := plainText(t, f)
		want, err := smi.ParseMatrix(readFile(t, f))
		if err != nil {
			t.Fatal(err)
		}
		for width := 24; width <= 200; width += 1 + width/80*6 {
			for _, trim := range []bool{false, true} {
				broken := wrap(text, width, trim)
				if got, err := smi.ParseMatrix([]byte(broken)); err == nil {
					knownCellsAreRight(t, fmt.Sprintf("%s at %d, trim %v", f, width, trim), want, got)
				}
			}
		}
	}
}

func knownCellsAreRight(t *testing.T, text string, want, got *smi.Matrix) {
	t.Helper()
	for i := range got.Devices {
		for j := range got.Devices {
			a, b := got.Devices[i].Name, got.Devices[j].Name
			c, _ := cellOf(want, a, b)
			if g := got.Cells[i][j]; g != c && g.Class != topology.PathUnknown {
				t.Fatalf("%s: from %s to %s is %q, want %q", text, a, b, g, c)
			}
		}
	}
}

// TestColumnsRunTogether drops the white space between two columns, as web pages do that cut a long line in two.
func TestColumnsRunTogether(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures(t) {
		want, err := smi.ParseMatrix(readFile(t, f))
		if err != nil {
			t.Fatal(err)
		}
		n := len(want.Devices)
		for col := 2; col <= n; col++ {
			text := eachLine(plainText(t, f), func(l string) string {
				words := strings.Fields(l)
				at := col
				if !strings.HasPrefix(l, "GPU") && !strings.HasPrefix(l, "NIC") && !strings.HasPrefix(l, "mlx") {
					at = col - 1 // the header has no name
				}
				if len(words) < n || at >= len(words) || at == n && strings.HasPrefix(l, " ") {
					return l
				}
				return strings.Join(words[:at], " ") + strings.Join(words[at:], " ")
			})
			got, err := smi.ParseMatrix([]byte(text))
			if err != nil {
				t.Errorf("%s, columns %d and %d: %v\n%s", f, col-1, col, err, text)
				return
			}
			if diff := cmp.Diff(want, got, sameFacts); diff != "" {
				t.Errorf("%s, columns %d and %d (-want +got):\n%s", f, col-1, col, diff)
			}
		}
	}
}

func TestFirstCompleteMatrixIsRead(t *testing.T) {
	t.Parallel()
	two := "GPU0 GPU1 CPU Affinity\nGPU0 X NV4 0-7\nGPU1 NV4 X 0-7\n"
	other := "GPU0 GPU1 CPU Affinity\nGPU0 X PIX 0-7\nGPU1 PIX X 0-7\n"
	cut := "GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-7\nGPU1 SYS\n"
	for _, c := range []struct{ name, text, want, unread string }{
		{"two machines", two + "\n" + other, "NV4", "m.txt:1: another"},
		{"the same again", two + "\n" + two, "NV4", ""},
		{"the first one is cut off", cut + "\n" + other, "PIX", "m.txt:3: a matrix that is not read"},
		{"the second one is cut off", two + "\n" + cut, "NV4", ""},
		{"a matrix of peer access before it", " GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n\n" + two, "NV4", ""},
		{"prose about GPUs before it", "GPU0 and GPU1 are slow.\nGPU0 GPU1 too. GPU0 X is odd\n\n" + two, "NV4", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, []byte(c.text))
			if got := h.Reported[0].Label(); got != c.want {
				t.Errorf("read the one with %s; want %s", got, c.want)
			}
			if got := unread(h); (got == "") != (c.unread == "") || c.unread != "" && !strings.Contains(got,
				c.unread[len("m.txt:1:"):]) {
				t.Errorf("unread %q; want %q", got, c.unread)
			}
		})
	}
}

// A copied text may begin below the header or the first rows.
func TestRowsWithoutTheFirstAreRead(t *testing.T) {
	t.Parallel()
	rows := []string{
		"GPU0\t X \tNV18\tSYS\tPIX\tSYS\t0-31\t0\t\tN/A", "GPU1\tNV18\t X \tNODE\tSYS\tPXB\t0-31\t0\t\tN/A",
		"GPU2\tSYS\tNODE\t X \tSYS\tPHB\t32-63\t1\t\tN/A", "NIC0\tPIX\tSYS\tSYS\t X \tSYS",
		"NIC1\tSYS\tPXB\tPHB\tSYS\t X ",
	}
	for first := 1; first < 4; first++ {
		text := strings.Join(rows[first:], "\n") + "\n\nNIC Legend:\n\n  NIC0: mlx5_4\n  NIC1: mlx5_5\n"
		m, err := smi.ParseMatrix([]byte(text))
		if err != nil {
			t.Fatalf("from row %d: %v", first, err)
		}
		got := ""
		for i, d := range m.Devices {
			got += fmt.Sprintf("%s %s %s%v\n", d.Name, d.RDMA, d.CPUAffinity, m.Cells[i])
		}
		want := ""
		for i, row := range rows {
			f := strings.Fields(row)
			rdma, affinity := "", ""
			if i >= 3 {
				rdma = fmt.Sprintf("mlx5_%d", i+1)
			} else if i >= first {
				affinity = f[6]
			}
			for j := range first {
				if i < first && i != j {
					f[1+j] = ""
				}
			}
			want += fmt.Sprintf("%s %s %s%v\n", f[0], rdma, affinity, f[1:6])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("from row %d (-want +got):\n%s", first, diff)
		}
		if !smi.Sniff([]byte(text)) {
			t.Errorf("from row %d: it is not taken for a matrix", first)
		}
	}
	for _, text := range []string{"NIC0 X SYS\nGPU1 SYS X\n", "GPU3 NV1 X\nGPU4 NV1 X\n", "GPU2 X\n",
		"GPU1 NV2 X SYS\nsome words\n"} {
		if m, err := smi.ParseMatrix([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, m.Cells)
		}
	}
}
