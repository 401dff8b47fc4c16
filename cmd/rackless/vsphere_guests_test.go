package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/vspheretest"
)

const guestUser, guestPassword = "lab", "s3cret: of guests"

const transfers = "/tools"

// tools implements VMware Tools of all guests in a real machine. The simulator's own would run programs on this one.
type tools struct {
	ctx      context.Context
	machine  func() (*guest.Agent, error)
	mu       sync.Mutex
	programs map[int64]*types.GuestProcessInfo
}

func installTools(t *testing.T, s *vspheretest.Server, machine func() (*guest.Agent, error)) {
	r := s.Model.Map()
	tools := &tools{ctx: t.Context(), machine: machine, programs: map[int64]*types.GuestProcessInfo{}}
	for _, e := range r.AllReference("GuestProcessManager") {
		r.Put(&GuestProcessManager{mo.GuestProcessManager{Self: e.Reference()}, tools})
	}
	for _, e := range r.AllReference("GuestFileManager") {
		r.Put(&GuestFileManager{mo.GuestFileManager{Self: e.Reference()}, tools})
	}
	s.Model.Service.ServeMux.HandleFunc(transfers, tools.transfer)
	judge := r.Handler
	r.Handler = func(ctx *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
		ref, fault := judge(ctx, m)
		if _, start := m.Body.(*types.PowerOnVM_Task); start && fault == nil {
			if vm, ok := ctx.Map.Get(m.This).(*simulator.VirtualMachine); ok {
				vm.Guest = &types.GuestInfo{GuestOperationsReady: new(true)}
			}
		}
		return ref, fault
	}
}

func (t *tools) agent(ctx *simulator.Context, ref types.ManagedObjectReference, auth types.BaseGuestAuthentication) (
	*guest.Agent, types.BaseMethodFault) {
	vm, ok := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	login, named := auth.(*types.NamePasswordAuthentication)
	switch {
	case !ok:
		return nil, &types.ManagedObjectNotFound{Obj: ref}
	case vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn:
		return nil, vspheretest.WrongPower(vm, types.VirtualMachinePowerStatePoweredOn)
	case !named || login.Username != guestUser || login.Password != guestPassword:
		return nil, new(types.InvalidGuestLogin)
	}
	a, err := t.machine()
	if err != nil {
		return nil, new(types.GuestOperationsUnavailable)
	}
	return a, nil
}

// runLine uses a shell, like VMware Tools. It writes the process ID to $0.
const runLine = `sh -c "exec $1" & echo $! >"$0"; wait $!`

func (t *tools) start(a *guest.Agent, line string) (int64, types.BaseMethodFault) {
	note := "/run/tools-" + guest.NewMachineID()
	p := &types.GuestProcessInfo{CmdLine: line, StartTime: time.Now()}
	started := make(chan error, 1)
	go func() {
		r, err := a.Run(t.ctx, guest.Command{Argv: []string{"sh", "-c", runLine, note, line}})
		t.mu.Lock()
		defer t.mu.Unlock()
		p.ExitCode, p.EndTime = int32(r.ExitCode), new(time.Now())
		started <- err
	}()
	for {
		text, err := a.ReadFile(t.ctx, note)
		if pid, short := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && short == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			p.Pid, t.programs[pid] = pid, p
			return pid, nil
		}
		select {
		case err := <-started:
			if err != nil {
				return 0, new(types.GuestOperationsFault)
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (t *tools) transfer(w http.ResponseWriter, r *http.Request) {
	a, err := t.machine()
	if err == nil && r.Method == http.MethodPut {
		var text []byte
		if text, err = io.ReadAll(r.Body); err == nil {
			_, err = a.Run(t.ctx, guest.Command{Argv: []string{"sh", "-c", `umask 077; cat >"$0"`, r.FormValue("path")},
				Stdin: text})
		}
	} else if err == nil {
		var text []byte
		if text, err = a.Output(t.ctx, "cat", r.FormValue("path")); err == nil {
			_, err = w.Write(text)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func transferURL(ctx *simulator.Context, ref types.ManagedObjectReference, path string) string {
	vm, ok := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	if !ok {
		return ""
	}
	return fmt.Sprintf("https://*%s?%s", transfers, url.Values{"vm": {vm.Name}, "path": {path}}.Encode())
}

// A GuestProcessManager runs programs; the name is vSphere's.
type GuestProcessManager struct {
	mo.GuestProcessManager
	tools *tools
}

// StartProgramInGuest starts a program.
func (m *GuestProcessManager) StartProgramInGuest(ctx *simulator.Context,
	req *types.StartProgramInGuest) soap.HasFault {
	a, fault := m.tools.agent(ctx, req.Vm, req.Auth)
	spec, res := req.Spec.GetGuestProgramSpec(), new(types.StartProgramInGuestResponse)
	switch {
	case fault != nil:
	case !strings.HasPrefix(spec.ProgramPath, "/"):
		fault = new(types.FileNotFound)
	default:
		res.Returnval, fault = m.tools.start(a, spec.ProgramPath+" "+spec.Arguments)
	}
	return &methods.StartProgramInGuestBody{Res: res, Fault_: vspheretest.Refused(fault)}
}

// ListProcessesInGuest reports ended programs.
func (m *GuestProcessManager) ListProcessesInGuest(ctx *simulator.Context,
	req *types.ListProcessesInGuest) soap.HasFault {
	_, fault := m.tools.agent(ctx, req.Vm, req.Auth)
	m.tools.mu.Lock()
	defer m.tools.mu.Unlock()
	res := new(types.ListProcessesInGuestResponse)
	for _, pid := range req.Pids {
		if p := m.tools.programs[pid]; p != nil {
			res.Returnval = append(res.Returnval, *p)
		}
	}
	return &methods.ListProcessesInGuestBody{Res: res, Fault_: vspheretest.Refused(fault)}
}

// A GuestFileManager transfers files; the name is vSphere's.
type GuestFileManager struct {
	mo.GuestFileManager
	tools *tools
}

func (m *GuestFileManager) with(path string, ctx *simulator.Context, ref types.ManagedObjectReference,
	auth types.BaseGuestAuthentication) (*guest.Agent, types.BaseMethodFault) {
	a, fault := m.tools.agent(ctx, ref, auth)
	if fault != nil {
		return nil, fault
	}
	if r, err := a.Run(m.tools.ctx, guest.Command{Argv: []string{"test", "-f", path}}); err != nil || r.ExitCode != 0 {
		return nil, &types.FileNotFound{FileFault: types.FileFault{File: path}}
	}
	return a, nil
}

// InitiateFileTransferFromGuest returns a URL for reading.
func (m *GuestFileManager) InitiateFileTransferFromGuest(ctx *simulator.Context,
	req *types.InitiateFileTransferFromGuest) soap.HasFault {
	_, fault := m.with(req.GuestFilePath, ctx, req.Vm, req.Auth)
	return &methods.InitiateFileTransferFromGuestBody{Fault_: vspheretest.Refused(fault),
		Res: &types.InitiateFileTransferFromGuestResponse{
			Returnval: types.FileTransferInformation{Url: transferURL(ctx, req.Vm, req.GuestFilePath)}}}
}

// InitiateFileTransferToGuest returns a URL for writing.
func (m *GuestFileManager) InitiateFileTransferToGuest(ctx *simulator.Context,
	req *types.InitiateFileTransferToGuest) soap.HasFault {
	_, fault := m.tools.agent(ctx, req.Vm, req.Auth)
	return &methods.InitiateFileTransferToGuestBody{Res: &types.InitiateFileTransferToGuestResponse{
		Returnval: transferURL(ctx, req.Vm, req.GuestFilePath)}, Fault_: vspheretest.Refused(fault)}
}

// DeleteFileInGuest removes a file.
func (m *GuestFileManager) DeleteFileInGuest(ctx *simulator.Context, req *types.DeleteFileInGuest) soap.HasFault {
	a, fault := m.with(req.FilePath, ctx, req.Vm, req.Auth)
	if fault == nil {
		if _, err := a.Output(m.tools.ctx, "rm", req.FilePath); err != nil {
			fault = new(types.FileFault)
		}
	}
	return &methods.DeleteFileInGuestBody{Res: new(types.DeleteFileInGuestResponse), Fault_: vspheretest.Refused(fault)}
}
