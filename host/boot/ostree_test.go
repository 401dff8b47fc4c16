package boot

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/cmdline"
)

func coreOS(t testing.TB, kargs string) *machine {
	m := newMachine(t, map[string]string{"/run/ostree-booted": "", "/usr/bin/rpm-ostree": "#!", "/proc/cmdline": kargs +
		"\n", "/ostree/kargs": kargs, "/ostree/deployment": "0"})
	m.programs["rpm-ostree"] = m.rpmOSTree
	return m
}

// rpmOSTree deletes first, then appends, and refuses to delete a missing word (rpm-ostree(1), and
// kernel_arg_transaction_execute in its daemon). Each deployment has its own ostree=.
func (m *machine) rpmOSTree(argv []string) (string, error) {
	words := strings.Fields(m.text("/ostree/kargs"))
	if argv[1] != "kargs" {
		return "", fmt.Errorf("%q", argv)
	}
	if len(argv) == 2 {
		return strings.Join(words, " ") + "\n", nil
	}
	number := m.text("/ostree/deployment")
	for _, a := range argv[2:] {
		if word, ok := strings.CutPrefix(a, "--delete="); ok {
			at := slices.Index(words, word)
			if at < 0 {
				return "", fmt.Errorf("error: No karg '%s' found", word)
			}
			words = slices.Delete(words, at, at+1)
		}
	}
	for _, a := range argv[2:] {
		if word, ok := strings.CutPrefix(a, "--append="); ok {
			words = append(words, word)
		} else if !strings.HasPrefix(a, "--delete=") {
			return "", fmt.Errorf("error: Unknown option %s", a)
		}
	}
	next := strings.NewReplacer("0", "1", "1", "0").Replace(number)
	m.write("/ostree/deployment", next)
	m.write("/ostree/kargs", strings.ReplaceAll(strings.Join(words, " "), "boot."+number, "boot."+next))
	return "Staging deployment...done\n", nil
}

func (m *machine) kargs() string {
	return strings.Join(slices.DeleteFunc(strings.Fields(m.text("/ostree/kargs")), func(w string) bool {
		return strings.HasPrefix(w, "ostree=")
	}), " ")
}

const coreOSArgs = "mitigations=auto ignition.platform.id=metal $ignition_firstboot isolcpus=1 " +
	"ostree=/ostree/boot.0/fedora-coreos/1/0 root=UUID=1-2 rw hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4"

func TestRPMOSTreeMakesOneDeploymentInOrder(t *testing.T) {
	t.Parallel()
	m := coreOS(t, coreOSArgs)
	m.mustMake(change.Boot)
	if got, want := m.kargs(), "mitigations=auto ignition.platform.id=metal $ignition_firstboot root=UUID=1-2 rw "+
		"hugepagesz=2M hugepages=4 "+planText; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	deployments := func() int {
		n := 0
		for _, r := range m.ran {
			if strings.Contains(r, "--") {
				n++
			}
		}
		return n
	}
	if n := deployments(); n != 1 {
		t.Errorf("%d deployments: %q", n, m.ran)
	}
	m.mustMake(change.Boot)
	m.mustRollback()
	if got, want := m.kargs(), strings.Replace(coreOSArgs, "ostree=/ostree/boot.0/fedora-coreos/1/0 ", "",
		1); got != want {
		t.Errorf("rolled back\ngot  %s\nwant %s", got, want)
	}
	if n := deployments(); n != 2 {
		t.Errorf("%d deployments in all", n)
	}
}

func TestRPMOSTreeIsCutOffAnywhere(t *testing.T) {
	t.Parallel()
	for _, rollback := range []bool{false, true} {
		for n := 0; ; n++ {
			m := coreOS(t, coreOSArgs)
			was := m.kargs()
			cut := false
			if rollback {
				m.mustMake(change.Boot)
				cut = m.until(n, m.mustRollback)
			} else {
				cut = m.until(n, func() { m.mustMake(change.Boot) })
			}
			if n%2 == 0 {
				m.mustMake(change.Boot)
			}
			m.mustRollback()
			if got := m.kargs(); got != was {
				t.Fatalf("cut off at %d\ngot  %s\nwant %s", n, got, was)
			}
			if !cut {
				break
			}
		}
	}
}

func TestRPMOSTreeKeepsWhatWasAddedSince(t *testing.T) {
	t.Parallel()
	m := coreOS(t, "ro isolcpus=1 quiet")
	m.mustMake(change.Boot)
	m.write("/ostree/kargs", m.text("/ostree/kargs")+" debug")
	m.mustRollback()
	if got := m.kargs(); got != "ro quiet debug isolcpus=1" {
		t.Errorf("got %s", got)
	}
}

func TestRPMOSTreeThatDoesSomethingElseIsNoticed(t *testing.T) {
	t.Parallel()
	m := coreOS(t, "ro quiet")
	m.programs["rpm-ostree"] = func(argv []string) (string, error) {
		if len(argv) > 2 {
			return "", nil // an old version, which takes either deletions or additions
		}
		return "ro quiet\n", nil
	}
	m.mustFail(`/usr/bin/rpm-ostree kargs was to lead to "ro quiet ` + planText + `", and led to "ro quiet"`)
	m = coreOS(t, "x="+strings.Repeat("1", 2000))
	m.refused("and the kernel reads 2047")
}

func TestOptionsOfKargsLeadFromAnyListToAnyOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"ro", "quiet", "isolcpus=1", "iommu=pt", "hugepagesz=2M",
			"hugepages=4", "hugepagesz=1G", "console=a", "console=b"}), 0, 9)
		from, to := words.Draw(rt, "from"), words.Draw(rt, "to")
		m := &machine{t: t, System: &change.System{Root: t.TempDir()}}
		m.write("/ostree/kargs", strings.Join(from, " "))
		m.write("/ostree/deployment", "0")
		if options := kargsOptions(from, to); len(options) > 0 {
			if _, err := m.rpmOSTree(append([]string{"rpm-ostree", "kargs"}, options...)); err != nil {
				rt.Fatal(err)
			}
		}
		if diff := cmp.Diff(strings.Join(to, " "), m.kargs()); diff != "" {
			rt.Fatalf("-want +got:\n%s", diff)
		}
		line := strings.Join(from, " ")
		if edited := cmdline.Edit(line, planArgs); cmdline.UndoLines([]string{edited}, []string{line}, 0,
			planArgs)[0] != line {
			rt.Fatalf("%q", edited)
		}
	})
}
