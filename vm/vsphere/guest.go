//go:build linux

package vsphere

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/fault"
	guestops "github.com/vmware/govmomi/guest"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/qapi"
)

// ReachesGuests fails without a login for guests.
func (c *Conn) ReachesGuests() error {
	if c.guest == nil {
		return errors.New("rackless has no login for the guests: set GOVC_GUEST_LOGIN=USER:PASSWORD, or write it " +
			"into the file of the login")
	}
	return nil
}

// Agent runs programs in a node's guest as the user in GOVC_GUEST_LOGIN, by vSphere's guest operations, which VMware
// Tools execute. It waits up to limit until they are ready.
func (c *Conn) Agent(ctx context.Context, l *lab.Lab, node string, limit time.Duration) (*guest.Agent, error) {
	if err := c.ReachesGuests(); err != nil {
		return nil, err
	}
	m := c.machine(l, node)
	vm, _, err := m.find(ctx)
	if err == nil && vm == nil {
		err = fmt.Errorf("%s is not there", m.Name)
	}
	if err != nil {
		return nil, err
	}
	began := time.Now()
	err = wait.Until(ctx, time.Second, func() (bool, error) {
		ready, err := c.guestReady(ctx, vm)
		if err == nil && !ready && time.Since(began) >= limit {
			err = fmt.Errorf("VMware Tools do not answer in %s: it has to run, and its template needs open-vm-tools",
				m.Name)
		}
		return ready, err
	})
	if err != nil {
		return nil, err
	}
	password, _ := c.guest.Password()
	g := &guestConn{c: c, vm: m.Name, running: map[int64]string{}, open: map[int64]*guestFile{},
		done: make(chan struct{}),
		auth: &types.NamePasswordAuthentication{Username: c.guest.Username(), Password: password}}
	ops := guestops.NewOperationsManager(c.client.Client, vm.Reference())
	if g.programs, err = ops.ProcessManager(ctx); err != nil {
		return nil, err
	}
	if g.files, err = ops.FileManager(ctx); err != nil {
		return nil, err
	}
	a := guest.NewAgent(g)
	a.Node, a.Dir = node, "/tmp" // the user need not be root
	return a, nil
}

func (c *Conn) guestReady(ctx context.Context, vm *object.VirtualMachine) (bool, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	var have mo.VirtualMachine
	err := vm.Properties(ctx, vm.Reference(), []string{"guest.guestOperationsReady"}, &have)
	ready := have.Guest != nil && have.Guest.GuestOperationsReady != nil && *have.Guest.GuestOperationsReady
	return ready, err
}

// A guestConn implements qemu-ga commands by guest operations. Output goes to files in the guest's /tmp, which are read
// after the program's end.
type guestConn struct {
	c        *Conn
	vm       string
	auth     *types.NamePasswordAuthentication
	programs *guestops.ProcessManager
	files    *guestops.FileManager
	running  map[int64]string // prefix of file names by process ID
	open     map[int64]*guestFile
	done     chan struct{}
}

// A guestFile is read while it grows. A transfer always has the whole file.
type guestFile struct {
	path string
	text []byte // the last transfer
	at   int
}

type guestArgs struct {
	Path    string   `json:"path"`
	Arg     []string `json:"arg"`
	Capture bool     `json:"capture-output"`
	Input   []byte   `json:"input-data"`
	PID     int64    `json:"pid"`
	Mode    string   `json:"mode"`
	Handle  int64    `json:"handle"`
	Count   int      `json:"count"`
}

func (g *guestConn) Done() <-chan struct{} { return g.done }

func (g *guestConn) Close() error {
	close(g.done)
	return nil
}

// Call executes a qemu-ga command.
func (g *guestConn) Call(ctx context.Context, command string, args, result any) error {
	do, ok := map[string]func(context.Context, *guestArgs) (any, error){"guest-exec": g.start,
		"guest-exec-status": g.status, "guest-file-open": g.openFile, "guest-file-read": g.readFile,
		"guest-file-close": g.closeFile}[command]
	if !ok {
		return &qapi.Error{Command: command, Class: "CommandNotFound", Desc: "vSphere has no such guest operation"}
	}
	var a guestArgs
	if err := recode(args, &a); err != nil {
		return err
	}
	g.c.asking.Lock()
	defer g.c.asking.Unlock()
	got, err := do(ctx, &a)
	switch {
	case fault.Is(err, &types.InvalidGuestLogin{}):
		return fmt.Errorf("the guest of %s refuses the user of GOVC_GUEST_LOGIN, or the password", g.vm)
	case fault.Is(err, &types.GuestOperationsUnavailable{}):
		return fmt.Errorf("VMware Tools do not answer in %s any more", g.vm)
	case refused(err):
		return &qapi.Error{Command: command, Class: "GenericError", Desc: err.Error()}
	case err != nil || result == nil:
		return err
	}
	return recode(got, result)
}

// refused reports whether the guest itself refused the request.
func refused(err error) bool {
	var operation types.BaseGuestOperationsFault
	var file types.BaseFileFault
	if _, ok := fault.As(err, &operation); ok {
		return true
	}
	_, ok := fault.As(err, &file)
	return ok
}

func recode(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// captureScript keeps the first $1 bytes of a program's standard output and error in the files $0.out and $0.err. Like
// qemu-ga, it takes the rest, and ends when both are closed.
//
//go:embed capture.sh
var captureScript string

// programLine is for a shell. Files begin with base; limit is per kind of output.
func programLine(a *guestArgs, base string, limit int) string {
	argv := append([]string{a.Path}, a.Arg...)
	to := " >/dev/null 2>&1"
	if a.Capture {
		argv = append([]string{"/bin/sh", "-c", captureScript, base, strconv.Itoa(limit + 1)}, argv...)
		to = ""
	}
	from := "/dev/null"
	if len(a.Input) > 0 {
		from = base + ".in"
	}
	return "umask 077; exec " + strings.Join(lists.Map(argv, words.Quote), " ") + " <" + words.Quote(from) + to
}

// start relies on VMware Tools' shell, which is replaced by the program or captureScript, so the process ID is theirs.
func (g *guestConn) start(ctx context.Context, a *guestArgs) (any, error) {
	base := "/tmp/rackless-" + guest.NewMachineID()
	if len(a.Input) > 0 {
		if err := g.put(ctx, base+".in", a.Input); err != nil {
			return nil, err
		}
	}
	pid, err := g.programs.StartProgram(ctx, g.auth, &types.GuestProgramSpec{ProgramPath: "/bin/sh",
		Arguments: "-c " + words.Quote(programLine(a, base, maxTransfer))})
	if a.Capture || len(a.Input) > 0 {
		g.running[pid] = base
	}
	return map[string]int64{"pid": pid}, err
}

func (g *guestConn) status(ctx context.Context, a *guestArgs) (any, error) {
	list, err := g.programs.ListProcesses(ctx, g.auth, []int64{a.PID})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no process %d any more", g.vm, a.PID)
	}
	if list[0].EndTime == nil {
		return map[string]bool{"exited": false}, nil
	}
	answer := map[string]any{"exited": true, "exitcode": list[0].ExitCode}
	base, ok := g.running[a.PID]
	if !ok {
		return answer, nil
	}
	delete(g.running, a.PID)
	var failed error
	for suffix, key := range map[string]string{".out": "out", ".err": "err", ".in": ""} {
		if key != "" {
			text, err := g.get(ctx, base+suffix)
			switch {
			case errors.Is(err, errLarge):
				answer[key+"-truncated"] = true
			case err != nil:
				failed = err
			default:
				answer[key+"-data"] = base64.StdEncoding.EncodeToString(text)
			}
		}
		// It may never have been made.
		_ = g.files.DeleteFile(ctx, g.auth, base+suffix)
	}
	return answer, failed
}

func (g *guestConn) openFile(ctx context.Context, a *guestArgs) (any, error) {
	f := &guestFile{path: a.Path}
	var err error
	if a.Mode == "r" {
		f.text, err = g.get(ctx, a.Path)
	} else {
		err = g.put(ctx, a.Path, nil)
	}
	if err != nil {
		return nil, err
	}
	handle := int64(len(g.open) + 1)
	for g.open[handle] != nil {
		handle++
	}
	g.open[handle] = f
	return handle, nil
}

func (g *guestConn) readFile(ctx context.Context, a *guestArgs) (any, error) {
	f := g.open[a.Handle]
	if f == nil {
		return nil, fmt.Errorf("no file %d is open", a.Handle)
	}
	if f.at == len(f.text) {
		text, err := g.get(ctx, f.path)
		if err != nil && !fault.Is(err, &types.FileNotFound{}) {
			return nil, err
		}
		if len(text) > f.at {
			f.text = text
		}
	}
	part := f.text[f.at:min(len(f.text), f.at+a.Count)]
	f.at += len(part)
	return map[string]any{"buf-b64": base64.StdEncoding.EncodeToString(part), "eof": f.at == len(f.text)}, nil
}

func (g *guestConn) closeFile(_ context.Context, a *guestArgs) (any, error) {
	delete(g.open, a.Handle)
	return struct{}{}, nil
}

// maxTransfer is qemu-ga's limit for output too.
const maxTransfer = 16 << 20

var errLarge = fmt.Errorf("larger than %d MiB", maxTransfer>>20)

func (g *guestConn) get(ctx context.Context, path string) ([]byte, error) {
	info, err := g.files.InitiateFileTransferFromGuest(ctx, g.auth, path)
	if err != nil {
		return nil, err
	}
	u, err := g.files.TransferURL(ctx, info.Url)
	if err != nil {
		return nil, err
	}
	p := soap.DefaultDownload
	p.Close = true // to the host, not used again
	body, _, err := g.c.client.Client.Download(ctx, u, &p)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxTransfer+1))
	if err == nil && len(text) > maxTransfer {
		err = fmt.Errorf("%s of %s is %w", path, g.vm, errLarge)
	}
	return text, err
}

// put's file is readable to its user only.
func (g *guestConn) put(ctx context.Context, path string, text []byte) error {
	url, err := g.files.InitiateFileTransferToGuest(ctx, g.auth, path,
		&types.GuestPosixFileAttributes{Permissions: 0o600}, int64(len(text)), true)
	if err != nil {
		return err
	}
	u, err := g.files.TransferURL(ctx, url)
	if err != nil {
		return err
	}
	p := soap.DefaultUpload
	p.ContentLength, p.Close = int64(len(text)), true
	return g.c.client.Client.Upload(ctx, bytes.NewReader(text), u, &p)
}
