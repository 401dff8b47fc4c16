package host_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/plan"
)

func TestFirmwareIsShownUnlessItIsASettingToMake(t *testing.T) {
	t.Parallel()
	vf := 0
	p := epyc(t)
	const pf = "0000:41:00.0"
	p.Plan.VFs = []plan.PFCount{{PF: pf, Count: 4, Lab: 4}}
	p.Plan.Nodes[0].Cards = append(p.Plan.Nodes[0].Cards, plan.NodeDevice{ID: pf, Kind: plan.KindVF, VF: &vf})
	s := &change.System{Root: t.TempDir()}
	remarks, err := host.Remarks(context.Background(), s, p)
	if err != nil || !strings.Contains(strings.Join(remarks, "\n"), "mstconfig -d "+pf) {
		t.Errorf("remarks %q, %v; want the commands for %s", remarks, err, pf)
	}
	p.Choices.Firmware = true
	if remarks, err = host.Remarks(context.Background(), s, p); err != nil || len(remarks) > 0 {
		t.Errorf("remarks %q, %v; want none", remarks, err)
	}
}
