package vcenter_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"

	"github.com/rackless/rackless/vm/vspheretest"
)

// A server is a simulated vCenter that can lose the connection.
type server struct {
	*vspheretest.Server

	// Lose is the number of changing calls that are answered before the connection is lost. The next one is made
	// without an answer; later ones do not arrive. Negative means never.
	Lose atomic.Int64
	// Calls counts changing calls.
	Calls atomic.Int64
	// Meddle, if set, simulates another client.
	Meddle func(vm *simulator.VirtualMachine)

	refuse func(*simulator.Context, *simulator.Method) (mo.Reference, types.BaseMethodFault)
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{Server: vspheretest.New(t)}
	s.Lose.Store(-1)
	s.HTTP.Handler = s.lossy(s.HTTP.Handler)
	r := s.Model.Map()
	s.refuse, r.Handler = r.Handler, s.judge
	for _, e := range r.All("HostSystem") {
		h := e.(*simulator.HostSystem)
		if h.Parent.Type == "ClusterComputeResource" {
			n := r.Get(*h.ConfigManager.NetworkSystem).(*simulator.HostNetworkSystem)
			r.Put(&HostNetworkSystem{n, s})
		}
	}
	return s
}

// judge refuses calls that a vCenter refuses.
func (s *server) judge(ctx *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	object := ctx.Map.Get(m.This)
	vm, isVM := object.(*simulator.VirtualMachine)
	switch req := m.Body.(type) {
	case *types.Destroy_Task:
		if !isVM {
			return nil, s.judgeDestroy(ctx, m.This)
		}
	case *types.CreateDVS_Task:
		if f, ok := object.(*simulator.Folder); ok {
			ctx.Session.Registry.Put(&folder{f})
		}
	case *types.ReconfigureDvs_Task:
		if dvs, ok := object.(*simulator.DistributedVirtualSwitch); ok {
			return nil, s.judgeSwitch(ctx, m, dvs)
		}
	case *types.ReconfigVM_Task:
		if isVM && s.Meddle != nil {
			s.Meddle(vm)
		}
	case *types.RelocateVM_Task:
		if isVM {
			return nil, s.judgeMove(ctx, vm, req.Spec.Host)
		}
	}
	return s.refuse(ctx, m)
}

var changing = []string{"<CloneVM_Task", "<ReconfigVM_Task", "<PowerOnVM_Task", "<PowerOffVM_Task", "<Destroy_Task",
	"<UpdatePassthruConfig", "<ConfigurePowerPolicy", "<ReconfigureDvs_Task",
	"<UpdateModuleOptionString", "<CustomizeVM_Task", "<RelocateVM_Task", "<CreateDVS_Task", "<AddDVPortgroup_Task",
	"<AddVirtualSwitch", "<AddPortGroup", "<RemovePortGroup", "<RemoveVirtualSwitch"}

func (s *server) lossy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		lose := s.Lose.Load()
		if slices.ContainsFunc(changing, func(c string) bool { return strings.Contains(string(body), c) }) {
			if n := s.Calls.Add(1); lose >= 0 && n == lose+1 {
				next.ServeHTTP(httptest.NewRecorder(), r) // made, without an answer
			}
		}
		if lose >= 0 && s.Calls.Load() > lose {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// freeSpace is decreased by the simulator even for clones that it refuses.
var freeSpace = regexp.MustCompile(`<freeSpace>\d+</freeSpace>`)

// Inventory omits values that any work changes.
func (s *server) Inventory(t *testing.T) string {
	t.Helper()
	c := s.Client(t)
	v, err := view.NewManager(c).CreateContainerView(t.Context(), c.ServiceContent.RootFolder, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	var all []types.ObjectContent
	if err := v.Retrieve(t.Context(), []string{"ManagedEntity"}, nil, &all); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b types.ObjectContent) int { return strings.Compare(a.Obj.String(), b.Obj.String()) })
	var b bytes.Buffer
	for _, o := range all {
		o.PropSet = slices.DeleteFunc(o.PropSet, func(p types.DynamicProperty) bool { return p.Name == "recentTask" })
		text, err := xml.MarshalIndent(o, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(freeSpace.ReplaceAll(text, nil), '\n'))
	}
	for _, kind := range []string{"HostPowerSystem", "HostKernelModuleSystem"} {
		var lines []string
		for _, e := range s.Model.Map().AllReference(kind) {
			lines = append(lines, fmt.Sprintf("%+v\n", e))
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
	return b.String()
}

func (s *server) Snapshot(t *testing.T, name string) {
	t.Helper()
	task, err := object.NewVirtualMachine(s.Client(t), s.VM(name).Self).CreateSnapshot(t.Context(), "base", "", false,
		false)
	if err == nil {
		err = task.WaitEx(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Restart simulates the host's.
func (s *server) Restart() {
	for _, e := range s.Model.Map().All("HostSystem") {
		for _, p := range e.(*simulator.HostSystem).Config.PciPassthruInfo {
			if info, ok := p.(*types.HostSriovInfo); ok {
				info.SriovActive, info.NumVirtualFunction = info.SriovEnabled, info.NumVirtualFunctionRequested
			}
		}
	}
}
