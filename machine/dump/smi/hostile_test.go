package smi_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/topology"
)

func TestErrorsNameThePlace(t *testing.T) {
	t.Parallel()
	const header = "GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity\n"
	for _, c := range []struct{ name, text, want string }{
		{"an empty file", "",
			`m.txt: no matrix of nvidia-smi topo -m found; ` +
				`want a header line with "GPU0" and below it a line for each GPU and NIC`},
		{"another tool's output", "Architecture: x86_64\nCPU(s): 64\n",
			`m.txt: no matrix of nvidia-smi topo -m found; ` +
				`want a header line with "GPU0" and below it a line for each GPU and NIC`},
		{"a header alone", header,
			`m.txt: no matrix of nvidia-smi topo -m found; ` +
				`want a header line with "GPU0" and below it a line for each GPU and NIC`},
		{"the tool failed", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
			"m.txt: nvidia-smi could not reach the driver when this was written; nothing to read"},
		{"no GPU", "No devices were found\n", "m.txt: nvidia-smi found no GPU when this was written; nothing to read"},
		{"the matrix of peer access", " GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n",
			`m.txt:2: row "GPU0", column "GPU1": this is the matrix of nvidia-smi topo -p2p, which has no paths; ` +
				`give the output of nvidia-smi topo -m`},
		{"a cell missing at the end of a row", header + "GPU0 X PIX PHB 0-7 0\nGPU1 PIX X 0-7 0\nNIC0 PHB SYS X\n",
			`m.txt:3: row "GPU1": a cell is missing: the row has 2 paths, the header 3 columns`},
		{"a cell missing before the X", header + "GPU0 X PIX PHB 0-7 0\nGPU1 PIX X SYS 0-7 0\nNIC0 SYS X\n",
			`m.txt:4: row "NIC0", column "GPU1": "X" stands outside of the diagonal`},
		{"an empty cell between tabs", "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \t\tPHB\t0-7\nGPU1\tPIX\t X " +
			"\tSYS\t0-7\nNIC0\tPHB\tSYS\t X \n",
			`m.txt:2: row "GPU0": a cell is missing: the row has 2 paths, the header 3 columns`},
		{"the X missing", header + "GPU0 X PIX PHB 0-7 0\nGPU1 PIX SYS 0-7 0\nNIC0 PHB SYS X\n",
			`m.txt:3: row "GPU1", column "GPU1": want "X" where row and column are the same device, found "SYS"`},
		{"the first row cut off", header + "GPU0 X PI",
			`m.txt:2: row "GPU0", column "GPU1": "PI" is not a path; want X, NV#, PIX, PXB, PHB, NODE or SYS`},
		{"a cell cut off in a row that others follow", header + "GPU0 X PIX PHB 0-7 0\nGPU1 PIX X SY\nNIC0 PHB SYS X\n",
			`m.txt:3: row "GPU1", column "NIC0": "SY" is not a path; want X, NV#, PIX, PXB, PHB, NODE or SYS`},
		{"a cell that is no path", header + "GPU0 X FAST PHB 0-7 0\n",
			`m.txt:2: row "GPU0", column "GPU1": "FAST" is not a path; want X, NV#, PIX, PXB, PHB, NODE or SYS`},
		{"no links in NV#", header + "GPU0 X NV# PHB 0-7 0\n",
			`m.txt:2: row "GPU0", column "GPU1": "NV#" is not a path; want X, NV#, PIX, PXB, PHB, NODE or SYS`},
		{"no link at all", header + "GPU0 X NV0 PHB 0-7 0\n",
			`m.txt:2: row "GPU0", column "GPU1": "NV0" is not a path; want X, NV#, PIX, PXB, PHB, NODE or SYS`},
		{"a row missing between others", header + "GPU0 X PIX PHB 0-7 0\nNIC0 PHB SYS X\n",
			`m.txt:3: row "GPU1": the row is missing: the row of "NIC0" stands in its place`},
		{"a row twice", header + "GPU0 X PIX PHB 0-7 0\nGPU0 X PIX PHB 0-7 0\n",
			`m.txt:3: row "GPU1": the row is missing: the row of "GPU0" stands in its place`},
		{"rows in another order", header + "GPU0 X PIX PHB 0-7 0\nNIC0 PHB SYS X\nGPU1 PIX X SYS 0-7 0\n",
			`m.txt:3: row "GPU1": the row is missing: the row of "NIC0" stands in its place`},
		{"a path too many", header + "GPU0 X PIX PHB SYS 0-7 0\n", `m.txt:2: row "GPU0": 4 paths for 3 columns`},
		{"paths too many, run together", header + "GPU0 X PIX PHBSYS 0-7 0\n",
			`m.txt:2: row "GPU0": 4 paths for 3 columns`},
		{"values too many", header + "GPU0 X PIX PHB 0-7 0 N/A 7\n",
			`m.txt:2: row "GPU0": 4 values behind the paths; want CPU affinity, NUMA affinity and GPU NUMA ID at most`},
		{"the X in the wrong place", header + "GPU0 X PIX PHB 0-7 0\nGPU1 X PIX SYS 0-7 0\n",
			`m.txt:3: row "GPU1", column "GPU0": "X" stands outside of the diagonal`},
		{"a path to itself", header + "GPU0 PIX PIX PHB 0-7 0\n",
			`m.txt:2: row "GPU0", column "GPU0": want "X" where row and column are the same device, found "PIX"`},
		{"two paths for one pair", header + "GPU0 X PIX PHB 0-7 0\nGPU1 PIX X SYS 0-7 0\nNIC0 PHB PXB X\n",
			`m.txt:4: row "NIC0", column "GPU1": PXB, but line 3 has SYS for the same two devices in its row "GPU1"; ` +
				`one of them is wrong`},
		{"two numbers of links for one pair", header + "GPU0 X NV2 PHB 0-7 0\nGPU1 NV1 X SYS 0-7 0\nNIC0 PHB SYS X\n",
			`m.txt:3: row "GPU1", column "GPU0": NV1, but line 2 has NV2 for the same two devices in its row "GPU0"; ` +
				`one of them is wrong`},
		{"rows without a header that do not agree", "GPU0 X PIX PHB\nGPU1 PIX X SYS\n\n",
			`m.txt:1: row "GPU0": 3 paths for 2 columns`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := smi.Parse([]byte(c.text), "m.txt")
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			var e *smi.Error
			if !errors.As(err, &e) || e.File != "m.txt" {
				t.Errorf("error is %T; want *smi.Error with the file", err)
			}
		})
	}
}

func TestErrorWithoutAFileNamesTheLine(t *testing.T) {
	t.Parallel()
	_, err := smi.ParseMatrix([]byte("GPU0 GPU1\nGPU0 X\n"))
	const want = `line 2: row "GPU0": a cell is missing: the row has 1 paths, the header 2 columns`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestLastRowsMayBeCutOff(t *testing.T) {
	t.Parallel()
	const header, rows = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n",
		"GPU0\t X \tNV18\tSYS\tPIX\t0-31\t0\nGPU1\tNV18\t X \tNODE\tSYS\t0-31\t0\n"
	const all = "NV18 SYS PIX NODE SYS"
	for _, c := range []struct{ name, text, want, cut string }{
		{"rows of NICs are missing", rows, all + " ?", "NIC0"},
		{"before the legend", rows + "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n", all + " ?", "NIC0"},
		{"within a path", rows + "NIC0\tSYS\tNO", all + " ?", "NIC0"},
		{"behind a path, which may be the start of another", rows + "NIC0\tSYS\tNODE\t X \tSYS", all + " SYS", "NIC1"},
		{"within the number of links", "GPU0\t X \tNV18\tSYS\tPIX\t0-31\t0\nGPU1\tNV1", "NV18 SYS PIX ? ? ?", "GPU1"},
		{"the last row within itself", rows + "NIC0\tSYS\tNODE\t X \tSYS\nNIC1\tPIX\tS", all + " SYS", "NIC1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := smi.ParseMatrix([]byte(header + c.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, row := range m.Cells {
				for _, cell := range row[i+1:] {
					got = append(got, cmp.Or(cell.String(), "?"))
				}
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("paths %s, want %s", got, c.want)
			}
			if want := fmt.Sprintf("the matrix is cut off: the row %q is not whole", c.cut); len(m.Notes) == 0 ||
				!strings.HasPrefix(m.Notes[0].Why, want) {
				t.Errorf("notes %+v, want %s", m.Notes, want)
			}
		})
	}
}

func TestAffinityOfACutLineIsNotRead(t *testing.T) {
	t.Parallel()
	const whole = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPIX\tSYS\t0-31\t0\n" +
		"GPU1\tPIX\t X \tSYS\t32-63\t1"
	for text, want := range map[string]string{whole + "\n": "32-63 1", whole: " ",
		strings.TrimSuffix(whole, "3\t1"): " "} {
		m, err := smi.ParseMatrix([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if d := m.Devices[1]; d.CPUAffinity+" "+d.NUMAAffinity != want {
			t.Errorf("%q: affinity %q, node %q, want %s", text, d.CPUAffinity, d.NUMAAffinity, want)
		}
	}
}

// Only the last cell may be missing.
func TestEveryMissingCellIsFound(t *testing.T) {
	t.Parallel()
	lines := strings.Split(string(readFile(t, "p100-soc.txt")), "\n")
	names := strings.Fields(lines[0])[:5]
	whole, err := smi.ParseMatrix(readFile(t, "p100-soc.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for row := range names {
		for col := range names {
			for _, words := range []bool{false, true} {
				changed := append([]string(nil), lines...)
				cells := strings.Split(changed[row+1], "\t")
				cells[col+1] = ""
				changed[row+1] = strings.Join(cells, "\t")
				if words {
					changed[row+1] = strings.Join(strings.Fields(changed[row+1]), " ")
				}
				got, err := smi.ParseMatrix([]byte(strings.Join(changed, "\n")))
				if row == 4 && col == 4 && err == nil {
					knownCellsAreRight(t, "without the last cell", whole, got)
					continue
				}
				var e *smi.Error
				if !errors.As(err, &e) {
					t.Errorf("row %s, column %s: no error", names[row], names[col])
					continue
				}
				if e.Line != row+2 || e.Row != names[row] {
					t.Errorf("row %s, column %s: the error is for line %d, row %s", names[row], names[col], e.Line,
						e.Row)
				}
			}
		}
	}
}

// TestCutOffAnywhere fails if a cut fixture gives wrong facts instead of an error.
func TestCutOffAnywhere(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures(t) {
		b := readFile(t, f)
		want, err := smi.ParseMatrix(b)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(b); n += 1 + 12*(len(b)/2000) {
			got, err := smi.ParseMatrix(b[:n])
			if err != nil {
				continue
			}
			knownCellsAreRight(t, fmt.Sprintf("%s cut after %d bytes", f, n), want, got)
		}
	}
}

func TestCutHeaderTitlesAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, titles := range []string{"CPU Affinity NUMA Affinity GPU NUMA ID", "CPU Affinity NUMA Affinity",
		"CPU Affinity NUMA Aff", "CPU Affinity NUMA", "CPU Affinity", "CPU", ""} {
		m, err := smi.ParseMatrix([]byte("GPU0 GPU1 " + titles + "\nGPU0 X PIX 0-7 0 N/A\nGPU1 PIX X 8-15 1 N/A\n"))
		if err != nil {
			t.Errorf("%q: %v", titles, err)
			continue
		}
		if d := m.Devices[1]; d.CPUAffinity != "8-15" || d.NUMAAffinity != "1" || d.GPUNUMAID != "N/A" {
			t.Errorf("%q: got %+v", titles, d)
		}
	}
}

func TestMissingValuesAreNotShifted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, row, cpus, numa, mem string }{
		{"all there", "0-7\t0\t\tN/A", "0-7", "0", "N/A"},
		{"no NUMA affinity", "0-7\t\t\t\tN/A", "0-7", "", ""},
		{"no CPU affinity", "\t\t0\t\tN/A", "", "", ""},
		{"GPU memory alone", "\t\t\t\t1", "", "", ""},
		{"nothing", "", "", "", ""},
		{"run together", "0-7\t0N/A", "0-7", "0", "N/A"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := smi.ParseMatrix([]byte("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t" + c.row +
				"\n"))
			if err != nil {
				t.Fatal(err)
			}
			d := m.Devices[0]
			if d.CPUAffinity != c.cpus || d.NUMAAffinity != c.numa || d.GPUNUMAID != c.mem {
				t.Errorf("got %q, %q, %q; want %q, %q, %q", d.CPUAffinity, d.NUMAAffinity, d.GPUNUMAID, c.cpus, c.numa,
					c.mem)
			}
		})
	}
}

func TestValuesThatCannotBePlacedAreNoted(t *testing.T) {
	t.Parallel()
	h := parse(t, []byte("GPU0 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X 0-7 5\n"))
	if got, want := unread(h), `m.txt:2: GPU0: "5" is not read: a value is missing in `+
		"the row, and it may be of any column"; got != want {
		t.Errorf("unread %s; want %s", got, want)
	}
	h = parse(t, []byte("GPU0 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X 56-111,168-2231N/A\n"))
	if got, want := unread(h), `m.txt:2: GPU0: "56-111,168-2231N/A" behind the paths is not understood`; got != want {
		t.Errorf("unread %s; want %s", got, want)
	}
	if h.GPUs[0].CPUAffinity != nil {
		t.Errorf("affinity %s; want none", h.GPUs[0].CPUAffinity)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	if _, err := smi.ParseMatrix(make([]byte, 17<<20)); err == nil || !strings.Contains(err.Error(),
		"at most 16777216 are taken") {
		t.Errorf("17 MiB: %v", err)
	}
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "NIC%d ", i)
	}
	if _, err := smi.ParseMatrix([]byte("GPU0 " + b.String() + "\nGPU0 X SYS\n")); err == nil {
		t.Error("2001 columns are taken")
	}
	// Many beginnings of a matrix must not take quadratic time.
	if _, err := smi.ParseMatrix([]byte(strings.Repeat("GPU0 GPU1 GPU2\nGPU0 X\n", 100_000))); err == nil {
		t.Error("no error for headers without rows")
	}
	if _, err := smi.ParseMatrix([]byte(strings.Repeat("GPU0 X ", 300_000) + "\n")); err == nil {
		t.Error("no error for rows without an end")
	}
	h := parse(t, []byte(strings.Repeat("GPU0 GPU1\nGPU0 X NV1\nGPU1 NV1 X\n\n"+"GPU0 GPU1\nGPU0 X NV2\nGPU1 NV2 X\n\n",
		5000)))
	if len(h.Unread) > 100 {
		t.Errorf("%d notes", len(h.Unread))
	}
}

// If a GPU's NVLinks are down, only its own row shows that.
func TestCellsThatContradictEachOtherAreNotKnown(t *testing.T) {
	t.Parallel()
	const matrix = "\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n" +
		"GPU0\t X\tNV6\tNV6\tSYS\tSYS\t0-11\t0\n" +
		"GPU1\tNV6\t X\tNV6\tSYS\tPIX\t0-11\t0\nGPU2\tSYS\tNV6\t X\tSYS\tSYS\t0-11\t0\nNIC0\tSYS\tSYS\tSYS\t X\tSYS\n" +
		"NIC1\tSYS\tPIX\tSYS\tSYS\t X\n"
	m, err := smi.ParseMatrix([]byte(matrix))
	if err != nil {
		t.Fatal(err)
	}
	const want = `row "GPU2", column "GPU0": SYS, but line 2 has NV6 for the same two devices in its row "GPU0"; ` +
		`one of them is wrong`
	if !slices.Contains(m.Notes, smi.Note{Line: 4, Why: want}) {
		t.Errorf("notes %+v, want %s", m.Notes, want)
	}
	for i, row := range m.Cells {
		for j, c := range row {
			if unknown := c.Class == topology.PathUnknown; unknown != (i+j == 2 && i != j) {
				t.Errorf("cell %d, %d is %s", i, j, c)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	// The fuzzer does little with large seeds.
	for _, name := range []string{"gh200.txt", "p100-soc.txt"} {
		f.Add(readFile(f, name)[:300])
	}
	f.Add([]byte("GPU0 GPU1 CPU Aff\nGPU0 X NV18 0-3,\nGPU1 NV18 X 1"))
	f.Add([]byte("> \x1b[4mGPU0 NIC0NIC1CPU Affinity\n> GPU0 X SYSSYS0-3"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := smi.ParseMatrix(b)
		if err != nil {
			var e *smi.Error
			if !errors.As(err, &e) || e.Line < 0 || e.Line > 1+strings.Count(string(b), "\n")+1 {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if len(m.Cells) != len(m.Devices) || len(m.Devices) == 0 {
			t.Fatalf("%d rows for %d devices", len(m.Cells), len(m.Devices))
		}
		for i, row := range m.Cells {
			if len(row) != len(m.Devices) {
				t.Fatalf("row %d has %d cells", i, len(row))
			}
			for j, c := range row {
				if c != m.Cells[j][i] || (c.String() == "X") != (i == j) {
					t.Fatalf("cell %d, %d is %s, the other way %s", i, j, c, m.Cells[j][i])
				}
			}
		}
		h, err := smi.Parse(b, "fuzz")
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Reported) != len(m.Devices)*(len(m.Devices)-1)/2 {
			t.Fatalf("%d paths for %d devices", len(h.Reported), len(m.Devices))
		}
	})
}
