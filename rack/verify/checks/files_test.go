package checks

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

func adapterLab(t *testing.T, nodes int) *lab.Lab {
	l := testLab(t, nodes, 1)
	for i := range l.Nodes {
		l.Nodes[i].NIC = lab.NICConnectX4Lx
	}
	return l
}

func TestAFileThatArrivesWithOtherBytesIsFound(t *testing.T) {
	f := newFakeLab(t, adapterLab(t, 3))
	f.nodes["vm02"].wrong = "/usr/bin/b"
	got := checkLab(t, f, IDAdapterFiles)
	if len(got) != 3 {
		t.Fatalf("%d findings", len(got))
	}
	for _, g := range got {
		bad := g.Subject == "vm01 -> vm02"
		if (g.Status == finding.Failed) != bad || g.Code != "RL508" {
			t.Errorf("%s: %v, %s", g.Subject, g.Status, g.Have)
		}
		if bad && g.Have != "/usr/bin/b has the sum ff, and had 0b" {
			t.Errorf("it says %q", g.Have)
		}
	}
}

func TestFilesThatCannotBeSentSayWhy(t *testing.T) {
	for name, c := range map[string]struct {
		run    func(node string, argv []string) (bench.Output, error)
		status finding.Status
		have   string
	}{
		"the node does not answer": {func(string, []string) (bench.Output, error) {
			return bench.Output{}, errors.New("no agent")
		}, finding.Unknown, "vm00: no agent"},
		"no file": {func(string, []string) (bench.Output, error) {
			return bench.Output{}, nil
		}, finding.Unknown, "vm00: no file to send"},
		"nothing can be read there": {func(string, []string) (bench.Output, error) {
			return bench.Output{ExitCode: 1, Stderr: []byte("Input/output error\n")}, nil
		}, finding.Unknown, "vm00: md5sum: exit status 1: Input/output error"},
		"nothing arrives": {func(_ string, argv []string) (bench.Output, error) {
			if argv[0] == "sh" && strings.HasPrefix(argv[2], "md5sum") {
				return bench.Output{Stdout: []byte("0a  /usr/bin/a\n")}, nil
			}
			return bench.Output{ExitCode: 1, Stderr: []byte("wget: download timed out\n")}, nil
		}, finding.Failed, "vm01: exit status 1: wget: download timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeLab(t, adapterLab(t, 2))
			f.run = c.run
			got := checkLab(t, f, IDAdapterFiles)
			if len(got) != 2 || got[0].Status != c.status || got[0].Have != c.have {
				t.Errorf("findings %+v", got)
			}
		})
	}
}

func TestFilesThatDoNotArriveInTimeAreNoFault(t *testing.T) {
	l := adapterLab(t, 2)
	synctest.Test(t, func(t *testing.T) {
		f := newFakeLab(t, l)
		f.nodes["vm01"].hangs = true
		got := checkLab(t, f, IDAdapterFiles)
		if len(got) != 2 || got[0].Status != finding.Unknown || got[0].Have != "vm01: no end within 1m0s" ||
			!strings.Contains(got[0].Fix, "rackless link show") || got[1].Status != finding.OK {
			t.Errorf("findings %+v", got)
		}
	})
}

func TestOnlyNodesOfTheBuiltInImageSendFiles(t *testing.T) {
	l := adapterLab(t, 3)
	l.Nodes[1].Image = "debian-12"
	var subjects []string
	for _, g := range checkLab(t, newFakeLab(t, l), IDAdapterFiles) {
		subjects = append(subjects, g.Subject)
	}
	if got := strings.Join(subjects, ", "); got != "vm00 -> vm02, vm02 -> vm00" {
		t.Errorf("pairs %s", got)
	}
}
