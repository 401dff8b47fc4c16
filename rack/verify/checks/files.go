package checks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

const (
	filesPort  = 18701
	filesLimit = 60 * time.Second // for one pair
	// filesToSend are large enough for memory of their own, and small enough to send quickly.
	filesToSend = "find /usr/bin -type f -size +128k -size -1024k | sort | head -n 3"
)

func fileSenders(l *lab.Lab) []lab.Node {
	return lists.Filter(l.Nodes, func(n lab.Node) bool { return n.ConnectX() && !n.HasDisk() && len(n.NICs) > 0 })
}

// files lets every member send files of its image to the next one, and compares checksums. The adapter reads memory
// that the node has had since it was cloned (page cache); other checks send only new data.
func files(ctx context.Context, members []lab.Node, known []finding.Finding, r Reader) []finding.Finding {
	out := make([]finding.Finding, len(members))
	parallel(len(members), func(i int) {
		out[i] = sendFiles(ctx, members[i], members[(i+1)%len(members)], known, r)
	})
	return out
}

func sendFiles(ctx context.Context, server, client lab.Node, known []finding.Finding, r Reader) finding.Finding {
	addr := net.JoinHostPort(server.NICs[0].Addr.Addr().String(), strconv.Itoa(filesPort))
	f := finding.Finding{ID: IDAdapterFiles, Subject: server.Name + " -> " + client.Name, Status: finding.OK,
		Title: "files of the image arrive as they are", Want: "the sums that the sender has",
		Evidence: "busybox httpd on " + server.Name + ", wget and md5sum on " + client.Name}
	outcome := func(status finding.Status, have, fix string) finding.Finding {
		f.Status, f.Have, f.Fix = status, have, fix
		return f
	}
	for _, n := range []lab.Node{server, client} {
		if why, bad := obstacle(known, n, ""); bad {
			return outcome(finding.Unknown, fmt.Sprintf("not sent: %s: %s: %s", why.Subject, why.Title, why.Have),
				why.Fix)
		}
	}
	const fixUnread = "rackless ls shows whether the nodes run"
	late := fmt.Errorf("no end within %v", filesLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, filesLimit, late)
	defer cancel()
	res, err := r.Exec(ctx, server.Name, []string{"sh", "-c", "md5sum $(" + filesToSend + ")"})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("md5sum: exit status %d: %s", res.ExitCode, bytes.TrimSpace(res.Stderr))
	}
	if err != nil {
		return outcome(finding.Unknown, server.Name+": "+err.Error(), fixUnread)
	}
	sent, names := readSums(res.Stdout)
	if len(names) == 0 {
		return outcome(finding.Unknown, server.Name+": no file to send", fixUnread)
	}
	res, err = fetchFiles(ctx, server.Name, client.Name, addr, names, r)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), late):
		return outcome(finding.Unknown, client.Name+": "+late.Error(),
			"rackless link show lists links that lose or delay frames: clear them, or verify when the machine is less "+
				"busy")
	case err != nil:
		return outcome(finding.Unknown, client.Name+": "+err.Error(), fixUnread)
	case res.ExitCode != 0:
		return outcome(finding.Failed, fmt.Sprintf("%s: exit status %d: %s", client.Name, res.ExitCode,
			bytes.TrimSpace(res.Stderr)), inNode("busybox httpd, wget: see rackless link show for lost frames"))
	}
	got, _ := readSums(res.Stdout)
	var wrong []string
	for _, name := range names {
		if got[name] != sent[name] {
			wrong = append(wrong, fmt.Sprintf("%s has the sum %s, and had %s", name, got[name], sent[name]))
		}
	}
	if len(wrong) > 0 {
		return outcome(finding.Failed, strings.Join(wrong, "; "), "an error of the NIC or of QEMU: results of "+
			"this lab are worth nothing; rackless logs "+server.Name+
			" and rackless nic ls say what QEMU and the NIC say")
	}
	f.Have = fmt.Sprintf("%d files have their sums", len(names))
	return f
}

func fetchFiles(ctx context.Context, server, client, addr string, names []string, r Reader) (bench.Output, error) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	defer func() {
		stop()
		<-done
	}()
	go func() {
		defer close(done)
		_, _ = r.Exec(ctx, server, []string{"busybox", "httpd", "-f", "-p", addr, "-h", "/"})
	}()
	// The server may not listen yet.
	const script = `to=$1 n=0 got=/tmp/.rackless-file; shift
for f in "$@"; do
	until why=$(timeout 20 wget -q -O $got "http://$to$f" 2>&1); do
		n=$((n + 1)); [ $n -lt 50 ] || { echo "$why" >&2; rm -f $got; exit 1; }
		sleep 0.1
	done
	sum=$(md5sum <$got)
	echo "${sum%% *}  $f"
done
rm -f $got`
	return r.Exec(ctx, client, append([]string{"sh", "-c", script, "sh", addr}, names...))
}

func readSums(out []byte) (sums map[string]string, names []string) {
	sums = map[string]string{}
	for line := range strings.Lines(string(out)) {
		if sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  "); ok {
			sums[name], names = sum, append(names, name)
		}
	}
	return sums, names
}
