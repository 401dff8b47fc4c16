// Package slurm configures and starts munge, slurmd and slurmctld on the full nodes of a lab. Everything is on the
// nodes' disks, so that a restarted node takes jobs again.
package slurm

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/parallel"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/plan/render/slurm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/image"
)

// Nodes are like a *rack.Rack.
type Nodes interface {
	Run(ctx context.Context, node string, c guest.Command) (guest.Result, error)
	Facts(ctx context.Context, node string) (*facts.Node, error)
}

// Start configures and starts Slurm, after calling begin, unless it already runs with this configuration. dir is the
// lab's directory, which keeps the munge key.
func Start(ctx context.Context, l *lab.Lab, dir string, nodes Nodes, begin func()) error {
	if l.Slurm == nil {
		return nil
	}
	key, err := ensureKey(filepath.Join(dir, fileKey))
	if err != nil {
		return err
	}
	cluster, err := clusterOf(ctx, l, nodes)
	if err != nil {
		return err
	}
	files, err := slurm.Files(cluster)
	if err != nil {
		return err
	}
	changed := false
	var mu sync.Mutex
	err = parallel.Each(l.SlurmNodes(), func(name string) error {
		c := configure(files, key, name == l.Slurm.Controller)
		res, err := nodes.Run(ctx, name, guest.Command{Argv: []string{"sh", "-c", c.check}})
		if err != nil || res.ExitCode == 0 {
			return err
		}
		mu.Lock()
		if !changed {
			begin()
		}
		changed = true
		mu.Unlock()
		res, err = nodes.Run(ctx, name, guest.Command{Argv: []string{"sh", "-c", c.run}, Stdin: c.archive})
		return failed(name, "configure Slurm", res, err)
	})
	if err != nil || !changed {
		return err
	}
	res, err := nodes.Run(ctx, l.Slurm.Controller, guest.Command{Argv: []string{"sh", "-c", awaitIdle}})
	return failed(l.Slurm.Controller, "wait for Slurm's nodes", res, err)
}

func clusterOf(ctx context.Context, l *lab.Lab, nodes Nodes) (slurm.Cluster, error) {
	names := l.SlurmNodes()
	c := slurm.Cluster{Name: l.Name, Controller: l.Slurm.Controller, MPI: "pmix",
		Nodes: make([]slurm.Node, len(names)), Made: "Made by rackless up for lab " + l.Name + "."}
	err := parallel.Each(names, func(name string) error {
		f, err := nodes.Facts(ctx, name)
		if err != nil {
			return err
		}
		n, err := slurm.NodeOf(name, &f.Host)
		i := slices.IndexFunc(l.Nodes, func(n lab.Node) bool { return n.Name == name })
		n.Devices = append(gpusOf(l.Nodes[i]), n.Devices...)
		c.Nodes[slices.Index(names, name)] = n
		return err
	})
	for _, n := range l.Nodes {
		if n.Has("slurm") && !n.Has("mpi") {
			c.MPI = "" // PMIx comes with Open MPI
		}
	}
	c.Switches = []slurm.Switch{{Name: "fabric", Nodes: names}}
	return c, err
}

// gpusOf returns the emulated GPUs of a node, by the files that the image set gpu gives them. They have no type: that
// of NVML is found if a user says AutoDetect=nvml.
func gpusOf(n lab.Node) (all []slurm.Device) {
	for i := range n.GPUs {
		if n.Has("gpu") && n.PersonalityOf(i) == lab.PersonalityVirtio {
			all = append(all, slurm.Device{Kind: slurm.GPU, File: fmt.Sprintf("/dev/nvidia%d", len(all))})
		}
	}
	return all
}

const fileKey = "munge.key"

// ensureKey's file is readable only by the lab's user.
func ensureKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		key = make([]byte, 128)
		rand.Read(key) // never fails, see crypto/rand
		err = atomicfile.WriteFile(path, key, 0o600)
	}
	if err == nil && len(key) < 32 {
		err = fmt.Errorf("%s has %d bytes, and munge takes no less than 32; rackless down, then up, makes another one",
			path, len(key))
	}
	return key, err
}

type configuration struct {
	check   string // commands that succeed if it is in place
	run     string // commands that read the archive
	archive []byte
}

const digestFile = "/etc/slurm/rackless.sha256"

func configure(files []render.Artifact, key []byte, controller bool) configuration {
	units := "munge slurmd"
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	add := func(name, owner string, mode int64, data []byte) {
		_ = t.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data)), Uname: owner, Gname: owner})
		_, _ = t.Write(data)
	}
	for _, f := range files {
		add("etc/slurm/"+f.Path, "root", int64(f.Mode.Perm()), f.Data)
	}
	if controller { // so that the slurmd beside it need not retry
		units = "munge slurmctld slurmd"
		add("etc/slurm/controller", "root", 0o644, nil)
	}
	add("etc/munge/munge.key", "munge", 0o600, key)
	sum := sha256.Sum256(b.Bytes())
	digest := hex.EncodeToString(sum[:])
	add(digestFile[1:], "root", 0o644, []byte(digest+"\n"))
	_ = image.SlurmFiles(func(name string, data []byte, mode int64) error {
		add(name, "root", mode, data)
		return nil
	})
	_ = t.Close()
	return configuration{archive: b.Bytes(),
		check: fmt.Sprintf(`read -r sum <%s && [ "$sum" = %s ] || exit 1
for u in %s; do systemctl --quiet is-active $u || exit 1; done`, digestFile, digest, units),
		run: runScript}
}

//go:embed configure.sh
var runScript string

//go:embed await_idle.sh
var awaitIdle string

func failed(node, what string, res guest.Result, err error) error {
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit status %d: %s", res.ExitCode,
			strings.Join(strings.Fields(string(res.Stdout)+" "+string(res.Stderr)), " "))
	}
	if err != nil {
		return fmt.Errorf("node %s: %s: %w; its log is in /var/log/slurm of the node", node, what, err)
	}
	return nil
}
