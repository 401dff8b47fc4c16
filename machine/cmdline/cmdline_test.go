package cmdline

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const planArgs = "iommu=pt isolcpus=managed_irq,domain,2-29 nohz_full=2-29 hugepagesz=1G hugepages=0:16,1:16"

func TestEditKeepsWhatIsThereAndPutsArgumentsAtTheEnd(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, line, want string }{
		{"an empty line", "", planArgs},
		{"nothing but space", "  ", planArgs + "  "},
		{"others stay in place", "root=/dev/sda2 ro  quiet", "root=/dev/sda2 ro  quiet " + planArgs},
		{"space at both ends stays", " ro ", " ro " + planArgs + " "},
		{"other values go", "ro isolcpus=1 quiet iommu=off isolcpus=3", "ro quiet " + planArgs},
		{"the first word goes with its space", "isolcpus=1 ro", "ro " + planArgs},
		{"all there already", "ro " + planArgs + " quiet", "ro " + planArgs + " quiet"},
		{"all there in another order", "nohz_full=2-29 isolcpus=managed_irq,domain,2-29 hugepagesz=1G " +
			"hugepages=0:16,1:16 iommu=pt",
			"nohz_full=2-29 isolcpus=managed_irq,domain,2-29 hugepagesz=1G hugepages=0:16,1:16 iommu=pt"},
		{"a part is there already", "iommu=pt ro", "ro " + planArgs},
		{"pages of another size stay with their count", "hugepagesz=1G hugepages=64 hugepagesz=2M hugepages=512",
			"hugepagesz=2M hugepages=512 " + planArgs},
		{"a size by another name", "hugepagesz=1024M hugepages=4", planArgs},
		{"the default size stays", "default_hugepagesz=1G hugepages=4", "default_hugepagesz=1G " + planArgs},
		{"a count of the right size at the wrong place",
			"hugepages=0:16,1:16 iommu=pt isolcpus=managed_irq,domain,2-29 nohz_full=2-29 hugepagesz=1G", planArgs},
		{"a dash is an underscore", "nohz-full=1 ro", "ro " + planArgs},
		{"names that only end alike", "amd_iommu=on intel_iommu=on", "amd_iommu=on intel_iommu=on " + planArgs},
		{"what is for init stays behind", "ro -- isolcpus=1 single", "ro " + planArgs + " -- isolcpus=1 single"},
		{"quoted words are one", `dyndbg="file a.c +p; isolcpus=1" ro`, `dyndbg="file a.c +p; isolcpus=1" ro ` +
			planArgs},
		{"a word in quotes", `"isolcpus=1" nohz_full="1,2" ro`, "ro " + planArgs},
		{"a quote that never ends", `ro x="a b`, `ro ` + planArgs + ` x="a b`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(planArgs)
			got := Edit(tt.line, args)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Edit(%q) (-want +got):\n%s", tt.line, diff)
			}
			if again := Edit(got, args); again != got {
				t.Errorf("and again: %q", again)
			}
			if !Has(got, args) {
				t.Errorf("Has(%q) = false", got)
			}
		})
	}
}

func TestHas(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		planArgs:                                true,
		"ro " + planArgs + " quiet":             true,
		planArgs + " iommu=pt":                  true,
		planArgs + " iommu=off":                 false,
		planArgs + " isolcpus=1":                false,
		planArgs + " hugepages=4":               false,
		planArgs + " hugepagesz=2M hugepages=4": true,
		"hugepagesz=2M " + planArgs:             true,
		"-- " + planArgs:                        false,
		"":                                      false,
		strings.Replace(planArgs, "hugepagesz=1G hugepages=0:16,1:16", "hugepages=0:16,1:16 hugepagesz=1G", 1): false,
	} {
		if got := Has(line, strings.Fields(planArgs)); got != want {
			t.Errorf("Has(%q) = %v", line, got)
		}
	}
	if !Has("anything", nil) {
		t.Error("no arguments are missing somewhere")
	}
}

func TestALineInPiecesGetsTheArgumentsInOne(t *testing.T) {
	t.Parallel()
	const cpus, pages = "iommu=pt isolcpus=2-5", "hugepagesz=1G hugepages=8"
	tests := []struct {
		name  string
		args  string
		lines []string
		at    int
		want  []string
	}{
		{"in the first", cpus, []string{"ro isolcpus=1", "quiet isolcpus=7"}, 0, []string{"ro iommu=pt isolcpus=2-5",
			"quiet"}},
		{"in the last", cpus, []string{"ro isolcpus=1", "quiet"}, 1, []string{"ro", "quiet iommu=pt isolcpus=2-5"}},
		{"before what is for init in a piece before", cpus, []string{"ro -- a", "isolcpus=1"}, 1,
			[]string{"ro iommu=pt isolcpus=2-5 -- a", "isolcpus=1"}},
		{"what one piece has counts for all", cpus, []string{"iommu=pt", "isolcpus=2-5"}, 0,
			[]string{"iommu=pt", "isolcpus=2-5"}},
		{"not between a size and its count", pages, []string{"hugepagesz=2M", "quiet hugepages=4", "ro"}, 0,
			[]string{"hugepagesz=2M", "quiet hugepages=4 hugepagesz=1G hugepages=8", "ro"}},
		{"before a size with its count", pages, []string{"ro", "hugepagesz=2M hugepages=4"}, 0,
			[]string{"ro hugepagesz=1G hugepages=8", "hugepagesz=2M hugepages=4"}},
		{"before a count that goes", pages, []string{"ro", "hugepages=4"}, 0, []string{"ro hugepagesz=1G hugepages=8",
			""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(tt.args)
			got := EditLines(tt.lines, tt.at, args)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tt.lines, UndoLines(got, tt.lines, tt.at, args)); diff != "" {
				t.Errorf("undone (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUndoKeepsWhatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	args := []string{"iommu=pt", "isolcpus=2-5"}
	tests := []struct{ name, before, now, want string }{
		{"a word more", "ro isolcpus=1 quiet", "ro quiet iommu=pt isolcpus=2-5 debug", "ro quiet debug isolcpus=1"},
		{"a word less", "ro isolcpus=1 quiet", "ro iommu=pt isolcpus=2-5", "ro isolcpus=1"},
		{"a value of their own", "ro isolcpus=1", "ro iommu=pt isolcpus=7", "ro isolcpus=7"},
		{"ours are gone", "ro isolcpus=1", "ro splash", "ro splash"},
		{"one of ours was there before", "ro iommu=pt", "ro iommu=pt isolcpus=2-5 debug", "ro debug iommu=pt"},
		{"it was never edited", "ro isolcpus=1 iommu=pt", "ro isolcpus=1 iommu=pt", "ro isolcpus=1 iommu=pt"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := UndoLines([]string{tt.now}, []string{tt.before}, 0, args)
			if diff := cmp.Diff([]string{tt.want}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestUndoKeepsSizesWithTheirCounts(t *testing.T) {
	t.Parallel()
	args := []string{"hugepagesz=1G", "hugepages=16"}
	tests := []struct{ name, before, now, want string }{
		{"ours", "hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=8",
			"debug hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=16",
			"debug hugepagesz=2M hugepages=4 hugepagesz=1G hugepages=8"},
		{"theirs, of our size", "hugepagesz=1G hugepages=8 hugepagesz=2M hugepages=4",
			"debug hugepagesz=1G hugepages=8 hugepagesz=2M hugepages=4",
			"debug hugepagesz=1G hugepages=8 hugepagesz=2M hugepages=4"},
		{"another count since", "ro", "ro hugepagesz=1G hugepages=32", "ro hugepagesz=1G hugepages=32"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff([]string{tt.want}, UndoLines([]string{tt.now}, []string{tt.before}, 0,
				args)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestStrip(t *testing.T) {
	t.Parallel()
	if got := Strip("ro isolcpus=1 quiet hugepagesz=2M hugepages=5 hugepagesz=1G hugepages=6 -- iommu=x",
		strings.Fields(planArgs)); got != "ro quiet hugepagesz=2M hugepages=5 -- iommu=x" {
		t.Errorf("got %q", got)
	}
}

func TestReplaced(t *testing.T) {
	t.Parallel()
	tests := []struct {
		line string
		want []string
	}{
		{"", nil},
		{"ro quiet " + planArgs, nil},
		{"isolcpus=1 ro iommu=soft", []string{"isolcpus=1", "iommu=soft"}},
		{"hugepagesz=2M hugepages=512 hugepagesz=1G hugepages=64", []string{"hugepages=64"}},
		{"hugepages=64", []string{"hugepages=64"}},
		{"intel_iommu=on default_hugepagesz=1G", nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, Replaced(tt.line, strings.Fields(planArgs))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.line, diff)
		}
	}
}

func drawLine(t *rapid.T, label string) string {
	word := rapid.SampledFrom([]string{
		"ro", "quiet", "root=UUID=1-2", "isolcpus=1", "isolcpus=managed_irq,domain,2-29", "iommu=pt", "iommu=off",
		"nohz_full=2-29", "nohz-full=3", "nohz_full",
		"hugepagesz=1G", "hugepagesz=2M", "hugepagesz=1024M", "hugepages=4", "hugepages=0:16,1:16",
		"default_hugepagesz=1G", "--", `x="a b"`, `y="`, `"isolcpus=3"`, "$tuned_params", "é",
	})
	space := rapid.SampledFrom([]string{" ", " ", "  ", "\t"})
	var b strings.Builder
	for range rapid.IntRange(0, 12).Draw(t, label+" words") {
		b.WriteString(space.Draw(t, label+" space") + word.Draw(t, label+" word"))
	}
	return b.String() + rapid.SampledFrom([]string{"", " ", "\r"}).Draw(t, label+" tail")
}

func drawArgs(t *rapid.T) []string {
	all := strings.Fields(planArgs)
	n := rapid.IntRange(1, len(all)).Draw(t, "arguments")
	if all[n-1] == "hugepagesz=1G" {
		n--
	}
	return all[:n]
}

func others(line string, args []string) []string { return Split(Strip(line, args)) }

func TestEditThenUndoIsTheIdentity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		args := drawArgs(t)
		lines := []string{drawLine(t, "first"), drawLine(t, "second")}[:rapid.IntRange(1, 2).Draw(t, "pieces")]
		at := rapid.IntRange(0, len(lines)-1).Draw(t, "at")
		if len(lines) > 1 && strings.Count(lines[0], `"`)%2 == 1 {
			return
		}
		edited := EditLines(lines, at, args)
		if !Has(strings.Join(edited, " "), args) {
			t.Fatalf("%q does not have %q", edited, args)
		}
		if again := EditLines(edited, at, args); !slices.Equal(again, edited) {
			t.Fatalf("again it is %q, not %q", again, edited)
		}
		if was, is := strings.Join(lines, " "), strings.Join(edited, " "); !slices.Equal(others(was, args),
			others(is, args)) {
			t.Fatalf("%q became %q", lines, edited)
		}
		if undone := UndoLines(edited, lines, at, args); !slices.Equal(undone, lines) {
			t.Fatalf("undone it is %q, not %q", undone, lines)
		}
	})
}

func TestUndoOfAChangedLineKeepsTheChangeAndLeavesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		args := drawArgs(t)
		before := drawLine(t, "line")
		if slices.ContainsFunc(Split(before), func(w string) bool { return strings.Count(w, `"`)%2 == 1 }) {
			return
		}
		edited := Edit(before, args)
		if edited == before {
			return
		}
		undone := UndoLines([]string{"debug " + edited}, []string{before}, 0, args)[0]
		want := append([]string{"debug"}, others(before, args)...)
		if got := others(undone, args); !slices.Equal(got, want) {
			t.Fatalf("%q: others are %q, want %q", undone, got, want)
		}
		mine := func(line string) (words []string) {
			m := newMatcher(args)
			for _, w := range Split(line) {
				if key, _, _ := parse(w); m.sets(w) && !isPages(key) {
					words = append(words, w)
				}
			}
			return append(words, m.pages(line)...)
		}
		if got, want := mine(undone), mine(before); !slices.Equal(got, want) {
			t.Fatalf("%q has %q, want %q", undone, got, want)
		}
	})
}

func FuzzEdit(f *testing.F) {
	for _, line := range []string{"", "ro isolcpus=1", `a="b c`, "-- x", `"isolcpus=1" -`,
		"hugepagesz=1024M hugepages=1\x00", "hugepagesz=99999999999999999999M"} {
		f.Add(line)
	}
	args := strings.Fields(planArgs)
	f.Fuzz(func(t *testing.T, line string) {
		tokens, tail := scan(line)
		whole := ""
		for _, tok := range tokens {
			whole += tok.space + tok.word
		}
		if whole+tail != line {
			t.Fatalf("tokens of %q are %+v", line, tokens)
		}
		edited := Edit(line, args)
		if !Has(edited, args) || Edit(edited, args) != edited {
			t.Fatalf("%q became %q", line, edited)
		}
		if undone := UndoLines([]string{edited}, []string{line}, 0, args)[0]; undone != line {
			t.Fatalf("%q became %q", line, undone)
		}
	})
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{
		"1G": 1 << 30, "2M": 2 << 20, "2048k": 2 << 20, "64K": 64 << 10, "1048576": 1 << 20, "0x100000": 1 << 20,
		"1t": 1 << 40,
		"":   0, "G": 0, "-1G": 0, "1GG": 0, "99999999999E": 0, "18446744073709551616": 0, "big": 0,
	} {
		if got := Size(text); got != want {
			t.Errorf("Size(%q) = %d; want %d", text, got, want)
		}
	}
}
