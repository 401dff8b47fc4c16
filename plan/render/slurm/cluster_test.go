package slurm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/plan/render"
)

var errMissing = errors.New("no Slurm is unpacked in the cache: make setup does it")

type daemons struct {
	dir   string
	root  string // directory of the packages
	env   []string
	procs []*exec.Cmd
}

func find() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root := filepath.Join(cache, "rackless", "slurm")
	if _, err := os.Stat(filepath.Join(root, "usr/sbin/slurmctld")); err != nil {
		return "", errMissing
	}
	return root, nil
}

// start returns when all nodes are idle. It replaces machine-wide settings, and the devices of gres.conf become empty
// files.
func start(files []render.Artifact) (c *daemons, err error) {
	root, err := find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rl-slurm-") // socket paths are limited to 107 bytes
	if err != nil {
		return nil, err
	}
	lib := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	c = &daemons{dir: dir, root: root, env: append(os.Environ(), "SLURM_CONF="+dir+"/slurm.conf",
		"LD_LIBRARY_PATH="+lib+"/slurm-wlm:"+lib)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w\n%s", err, c.logs()), c.Stop())
		}
	}()
	nodes, err := c.write(files)
	if err != nil {
		return nil, err
	}
	err = c.start("munged", "--foreground", "--force", "--key-file="+dir+"/key", "--socket="+dir+"/munge",
		"--pid-file="+dir+"/munged.pid", "--log-file="+dir+"/munged.log", "--seed-file="+dir+"/seed")
	if err != nil {
		return nil, err
	}
	if err := await(func() bool { _, err := os.Stat(dir + "/munge"); return err == nil }); err != nil {
		return nil, fmt.Errorf("munged: %w", err)
	}
	if err := c.start("slurmctld", "-D", "-i", "-f", dir+"/slurm.conf"); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		err := c.start("slurmd", "-D", "-N", n, "-f", dir+"/slurm.conf", "-d", root+"/usr/sbin/slurmstepd")
		if err != nil {
			return nil, err
		}
	}
	said := ""
	if err := await(func() bool {
		said, _ = c.Run("sinfo", "--noheader", "--Node", "--format=%N %T %E")
		return strings.Count(said, " idle ") == len(nodes)
	}); err != nil {
		return nil, fmt.Errorf("%w; sinfo: %s", err, said)
	}
	return c, nil
}

func await(done func() bool) error {
	const limit = 60 * time.Second // outside of tests, less than a second
	for began := time.Now(); time.Since(began) < limit; time.Sleep(20 * time.Millisecond) {
		if done() {
			return nil
		}
	}
	return fmt.Errorf("not ready within %v", limit)
}

func (c *daemons) write(files []render.Artifact) (nodes []string, err error) {
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	key := make([]byte, 128)
	rand.Read(key)
	if err := os.WriteFile(c.dir+"/key", key, 0o600); err != nil {
		return nil, err
	}
	for _, f := range files {
		text := string(f.Data)
		switch f.Path {
		case "slurm.conf":
			for _, setting := range []string{
				"SlurmctldHost=" + host + "(127.0.0.1)", "SlurmUser=" + me.Username, "SlurmdUser=" + me.Username,
				"AuthInfo=socket=" + c.dir + "/munge", "PluginDir=" + c.root + "/usr/lib/x86_64-linux-gnu/slurm-wlm",
				"StateSaveLocation=" + c.dir + "/state", "SlurmdSpoolDir=" + c.dir + "/%n",
				"SlurmctldPidFile=" + c.dir + "/slurmctld.pid", "SlurmdPidFile=" + c.dir + "/%n.pid",
				"SlurmctldLogFile=" + c.dir + "/slurmctld.log", "SlurmdLogFile=" + c.dir + "/%n.log",
				"ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "SlurmdParameters=config_overrides",
			} {
				text = set(text, setting)
			}
			if text, nodes, err = alone(text, host); err != nil {
				return nil, err
			}
		case "gres.conf":
			text = device.ReplaceAllStringFunc(text, func(word string) string {
				path := filepath.Join(c.dir, "dev"+strings.ReplaceAll(strings.TrimPrefix(word, "File="), "/", "-"))
				err = errors.Join(err, os.WriteFile(path, nil, 0o600))
				return "File=" + path
			})
		}
		if err = errors.Join(err, os.WriteFile(filepath.Join(c.dir, f.Path), []byte(text), 0o644)); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

var device = regexp.MustCompile(`\bFile=\S+`)

func set(text, setting string) string {
	name, _, _ := strings.Cut(setting, "=")
	line := regexp.MustCompile(`(?m)^` + name + `=.*$`)
	if line.MatchString(text) {
		return line.ReplaceAllLiteralString(text, setting)
	}
	return text + setting + "\n"
}

// alone gives each node a line with a port of this machine.
func alone(text, host string) (string, []string, error) {
	lines := strings.Split(text, "\n")
	var nodes []string
	for i, line := range lines {
		names, rest, _ := strings.Cut(strings.TrimPrefix(line, "NodeName="), " ")
		if !strings.HasPrefix(line, "NodeName=") {
			continue
		}
		var own []string
		for _, n := range expand(names) {
			port, err := freePort()
			if err != nil {
				return "", nil, err
			}
			nodes = append(nodes, n)
			own = append(own, fmt.Sprintf("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d %s", n, host, port,
				rest))
		}
		lines[i] = strings.Join(own, "\n")
	}
	port, err := freePort()
	return set(strings.Join(lines, "\n"), fmt.Sprintf("SlurmctldPort=%d", port)), nodes, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// expand reads vm[00-02,07],head.
func expand(list string) (names []string) {
	for _, m := range regexp.MustCompile(`([^,\[]+)(?:\[([^\]]*)\])?,?`).FindAllStringSubmatch(list, -1) {
		if m[2] == "" {
			names = append(names, m[1])
			continue
		}
		for r := range strings.SplitSeq(m[2], ",") {
			first, last, _ := strings.Cut(r, "-")
			last = cmp.Or(last, first)
			var from, to int
			fmt.Sscan(strings.TrimLeft(first, "0")+" ", &from) // all zeros are 0
			fmt.Sscan(strings.TrimLeft(last, "0")+" ", &to)
			for n := from; n <= to; n++ {
				names = append(names, fmt.Sprintf("%s%0*d", m[1], len(first), n))
			}
		}
	}
	return names
}

func (c *daemons) start(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(c.root, "usr/sbin", name), args...)
	cmd.Env = c.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := os.Create(filepath.Join(c.dir, fmt.Sprintf("out%d", len(c.procs))))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	c.procs = append(c.procs, cmd)
	return nil
}

// Run returns the output of a client, such as srun.
func (c *daemons) Run(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.root, "usr/bin", argv[0]), argv[1:]...)
	cmd.Env = append(c.env, "PATH="+c.root+"/usr/bin:"+os.Getenv("PATH"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), err
}

func (c *daemons) logs() string {
	var b strings.Builder
	found, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	outs, _ := filepath.Glob(filepath.Join(c.dir, "out*"))
	for _, name := range append(found, outs...) {
		text, _ := os.ReadFile(name)
		fmt.Fprintf(&b, "%s:\n%s\n", filepath.Base(name), text[max(0, len(text)-1000):])
	}
	return b.String()
}

// Stop removes all files too.
func (c *daemons) Stop() error {
	for _, p := range c.procs {
		_ = p.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	for _, p := range c.procs {
		kill := time.AfterFunc(10*time.Second, func() { _ = p.Process.Kill() })
		_ = p.Wait() // by a signal
		kill.Stop()
	}
	return os.RemoveAll(c.dir)
}
