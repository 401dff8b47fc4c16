package main

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/internal/tally"
)

// everyStep is the form of make test-faults. Otherwise make test-e2e kills, and cuts the power, at one step of each
// kind, and make test at a sample of the kinds. After some of these faults the other command turns round.
var everyStep = flag.Bool("every-step", false, "with -e2e, kill at every step, and turn round after every kill; come "+
	"to the end, and take back, after every power cut; and lead a study over boots: takes an hour")

// In make test. A cut costs a boot, half a minute of CPU under emulation.
const (
	killedKinds = 3
	cutKinds    = 1
)

// fromStep resumes an interrupted long form.
var fromStep = flag.Int("from-step", 1, "with -every-step, the first step at which the power is cut")

// turns is the number of kills of a command after which the other one runs.
const turns = 1

// uncut lists the kinds of step that prepare does not take for testdata/faults, with the reason.
var uncut = map[string]string{
	"driverctl":              "TestGuardsRefuseAndNothingIsChanged installs that package",
	"governor":               "emulated CPUs have none: host/tune",
	"kernel-args-by-hand":    "another boot loader: host/boot",
	"kernel-args-entries":    "another boot loader: host/boot",
	"kernel-args-rpm-ostree": "another boot loader: host/boot",
	"link":                   "no step of prepare makes one: host/change",
	"netdev-up":              "host links makes it: host/links",
	"mount":                  "of pages of 1 GiB: host/tune",
	"nic-firmware":           "of a ConnectX: TestPrepareSetsTheFirmwareOfAConnectX",
	"partition":              "of a host without kernel arguments: TestE2EVirtualFunctionsBesideATenant",
}

// Irrelevant to prepare, and not in a fingerprint.
const (
	idleUnits   = "serial-getty@hvc0.service serial-getty@ttyS0.service kmod-static-nodes.service"
	idleModules = "kvm_amd"
)

// A cutHost is interrupted in prepare and rollback, and has its valid states afterwards.
type cutHost struct {
	*small
	rng      *rand.Rand // draws steps and moments
	before   string     // state without rackless
	prepared string     // without a reboot
	// In order, by kind and subject.
	making, takingBack []string
}

// prepare's status 4, for a reboot, counts as 0.
const (
	cutPrepare  = "rackless prepare lab.yaml --yes"
	cutRollback = "rackless rollback --yes"
)

// smallProfile is the host of most tests, which share a template.
const smallProfile = "testdata/faults/host.yaml"

// bootCutHost disables idle units and modules if boots is true, for shorter boots.
func bootCutHost(t *testing.T, name string, boots bool) *cutHost {
	t.Helper()
	h := &cutHost{small: newSmall(t, name, smallProfile), rng: storey.Rand(t)}
	if boots {
		h.mustHost(t, "systemctl mask --quiet "+idleUnits+"; printf 'blacklist %s\\n' "+idleModules+
			" >/etc/modprobe.d/idle.conf")
	}
	h.putFile(t, "/root/lab.yaml", "testdata/faults/lab.yaml")
	return h
}

// bootAsItIsOff waits until command has powered the host off, and boots it by the next command, which reports the boot
// and reads a synced file.
func (h *cutHost) bootAsItIsOff(t *testing.T, command, synced string) {
	t.Helper()
	for deadline := time.Now().Add(commandLimit); ; time.Sleep(100 * time.Millisecond) {
		if list, _ := h.run(t, "emulate", "ls"); strings.Contains(list, " off ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s, and the power is on", command)
		}
	}
	boot := exec.CommandContext(t.Context(), h.program, "emulate", "-n", h.name, "--", "sh", "-c",
		"hostname; cat /root/synced || true")
	boot.Env = h.env
	said, err := boot.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "ok boot "+h.name+" ") ||
		!strings.Contains(string(said), "\n"+h.name+"\n"+synced) {
		t.Fatalf("the command that boots host %s: %v\n%s", h.name, err, said)
	}
	h.awaitServices(t)
}

func (h *cutHost) learn(t *testing.T) {
	t.Helper()
	h.before = h.state(t)
	h.mustPrepare(t)
	h.prepared = h.state(t)
	if h.prepared == h.before {
		t.Fatal("prepare changes nothing")
	}
	h.readSteps(t)
}

type small struct{ *emulatedHost }

func newSmall(t *testing.T, name, profile string) *small {
	t.Helper()
	needEmulation(t)
	file, err := filepath.Abs(profile)
	if err != nil {
		t.Fatal(err)
	}
	h := &small{newEmulated(t, name, "--name", name, file)}
	// Many short processes take half as long if none wakes another emulated CPU.
	h.cpu = "0"
	if out, status := h.start(t, "true"); status != 0 {
		t.Fatal(out)
	}
	h.putText(t, "/root/fingerprint", fingerprintScript)
	return h
}

// ofBoot matches the parts of a fingerprint that only a reboot changes. A kernel booted with isolcpus keeps its work
// queues off those CPUs.
var ofBoot = regexp.MustCompile(
	`(?m)^(BOOT_IMAGE=|/sys/devices/system/cpu/(isolated|nohz_full):|/sys/devices/virtual/workqueue/cpumask:).*\n`)

// state leaves out ofBoot.
func (h *small) state(t *testing.T) string {
	t.Helper()
	return ofBoot.ReplaceAllString(h.mustHost(t, "sh fingerprint"), "")
}

func (h *cutHost) same(t *testing.T, when, want string) {
	t.Helper()
	if diff := diffLines(want, h.state(t)); diff != "" {
		t.Fatalf("%s the host is in neither of the good states (-wanted +is):\n%s", when, diff)
	}
}

func (h *cutHost) mustPrepare(t *testing.T) {
	t.Helper()
	if out, status := h.host(t, cutPrepare); status != 0 && status != exitReboot {
		t.Fatalf("prepare: status %d\n%s", status, out)
	}
}

func (h *cutHost) rollback(t *testing.T) {
	t.Helper()
	h.mustHost(t, cutRollback)
}

// chain kills a command at each of the steps, one in each run; the last run completes.
func (h *cutHost) chain(t *testing.T, command string, steps []string, phase string) {
	t.Helper()
	out, status := h.host(t, fmt.Sprintf(`for at in '%s'; do
	RACKLESS_FAULT="kill:$at:%s" %s >log 2>&1; status=$?
	[ $status = %d ] || { echo "$at: status $status"; cat log; exit 1; }
done
%s >log 2>&1; status=$?
[ $status = 0 ] || [ $status = %d ] || { cat log; exit $status; }`, strings.Join(steps, "' '"), phase, command,
		exitKilled, command, exitReboot))
	if status != 0 {
		t.Fatalf("%s, killed where each of %q was %s: status %d\n%s", command, steps, phase, status, out)
	}
}

// turnRound kills a command at some steps; the other one must lead to state.
func (h *cutHost) turnRound(t *testing.T, command string, steps []string, other, state string) (kills int) {
	t.Helper()
	if !*everyStep {
		steps = storey.Some(h.rng, steps, turns)
	}
	first := h.rng.IntN(len(phases))
	for i, step := range steps {
		phase := phases[(i+first)%len(phases)]
		when := fmt.Sprintf("%s was killed where %s was %s", command, step, phase)
		out, status := h.host(t, fmt.Sprintf("RACKLESS_FAULT='kill:%s:%s' %s", step, phase, command))
		if status != exitKilled {
			t.Fatalf("%s: status %d\n%s", when, status, out)
		}
		if out, status := h.host(t, other); status != 0 && status != exitReboot {
			t.Fatalf("%s: %s: status %d\n%s", when, other, status, out)
		}
		h.same(t, when+", and then "+other, state)
	}
	return len(steps)
}

// phases are the moments of a step: the journal has it but it is not applied, or it is applied but not recorded.
var phases = []string{"begun", "made"}

func TestKilledPrepareGoesOnAndRollbackTakesBack(t *testing.T) {
	t.Parallel()
	killed(t, killedKinds)
}

func TestE2EKilledAtAnyStepPrepareGoesOnAndRollbackTakesBack(t *testing.T) {
	storey.E2E(t)
	t.Parallel()
	killed(t, len(host.Kinds()))
}

// killed uses the program's own SIGKILL at a step of some kinds. Somebody else's domain runs all the time, and notices
// nothing.
func killed(t *testing.T, atMost int) {
	h := bootCutHost(t, "killed", false)
	tenant := h.newTenant(t, untilBoot)
	h.learn(t)
	kinds := kindsOf(h.making)
	for kind := range host.Kinds() {
		if _, ok := uncut[kind]; ok == slices.Contains(kinds, kind) {
			t.Errorf("steps of kind %s are either made by prepare of testdata/faults, or named in uncut", kind)
		}
	}
	takingBack, making := h.takingBack, h.making
	if !*everyStep {
		kinds = storey.Some(h.rng, kinds, atMost)
		takingBack, making = h.oneOfEach(takingBack, kinds), h.oneOfEach(making, kinds)
	}
	first := h.rng.IntN(len(phases))
	turned := h.turnRound(t, cutRollback, h.takingBack, cutPrepare, h.prepared)
	h.chain(t, cutRollback, takingBack, phases[first])
	h.same(t, "rolled back in spite of kills", h.before)
	turned += h.turnRound(t, cutPrepare, h.making, cutRollback, h.before)
	h.chain(t, cutPrepare, making, phases[1-first])
	h.same(t, "prepared in spite of kills", h.prepared)
	kills := len(takingBack) + len(making)
	if *everyStep {
		h.chain(t, cutRollback, takingBack, phases[1-first])
		h.same(t, "rolled back in spite of kills", h.before)
		h.chain(t, cutPrepare, making, phases[first])
		h.same(t, "prepared in spite of kills", h.prepared)
		kills *= 2
	}
	h.rollback(t)
	h.same(t, "after rollback", h.before)
	tenant.undisturbed(t, "all of that")
	tenant.hadItsCPU(t)
	tally.Logf(t, "%d kills in prepare and rollback, at steps of the kinds %s and others: after %d the same command "+
		"went on, after %d the other one turned round", kills+turned, strings.Join(kinds, ", "), kills, turned)
}

// exitKilled is a shell's status after SIGKILL.
const exitKilled = 137

func (h *cutHost) readSteps(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"journal", "journal.head"} {
		text := h.mustHost(t, "cat /var/lib/rackless/host/"+name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := change.ReadJournal(filepath.Join(dir, "journal"), host.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	names := func(entries []*change.Entry) (out []string) {
		for _, e := range entries {
			out = append(out, e.Op.Kind()+" "+e.Op.Subject())
		}
		return out
	}
	h.making, h.takingBack = names(entries), names(change.RollbackOrder(entries))
	if len(entries) < 20 {
		t.Fatalf("there are more steps than %q", h.making)
	}
}

// TestPowerCut cuts the power once. The host boots, rackless-prepare.service does its part, and the command goes on, or
// the other one turns round.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	h := bootCutHost(t, "cut", true)
	h.learn(t)
	command := []string{cutPrepare, cutRollback}[h.rng.IntN(2)]
	if command == cutPrepare {
		h.rollback(t)
		h.same(t, "after rollback", h.before)
	}
	h.cutAtKinds(t, command, storey.Some(h.rng, kindsOf(h.making), cutKinds))
}

// TestE2EPowerCuts cuts at a step of each kind, half of them in prepare; or, with -every-step, at every step.
func TestE2EPowerCuts(t *testing.T) {
	storey.E2E(t)
	t.Parallel()
	h := bootCutHost(t, "cuts", true)
	h.learn(t)
	if *everyStep {
		h.rollback(t)
		h.same(t, "after rollback", h.before)
		h.cutAtEveryStep(t)
		return
	}
	kinds := kindsOf(h.making)
	inRollback := storey.Some(h.rng, kinds, len(kinds)/2)
	h.cutAtKinds(t, cutRollback, inRollback)
	h.cutAtKinds(t, cutPrepare, slices.DeleteFunc(kinds, func(k string) bool { return slices.Contains(inRollback, k) }))
}

func (h *cutHost) cutAtKinds(t *testing.T, command string, kinds []string) {
	t.Helper()
	if command == cutPrepare {
		h.chainOfCuts(t, command, h.oneOfEach(h.making, kinds), func(when string) {
			h.rollback(t)
			h.same(t, when+": after rollback", h.before)
		})
		h.same(t, "prepared in spite of power cuts", h.prepared)
		return
	}
	h.chainOfCuts(t, command, h.oneOfEach(h.takingBack, kinds), func(when string) {
		h.mustPrepare(t)
		h.same(t, when+": after prepare", h.prepared)
	})
	h.same(t, "rolled back in spite of power cuts", h.before)
}

func kindOf(step string) string {
	kind, _, _ := strings.Cut(step, " ")
	return kind
}

func kindsOf(steps []string) []string {
	var kinds []string
	for _, step := range steps {
		if kind := kindOf(step); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func (h *cutHost) oneOfEach(steps, kinds []string) []string {
	chosen := map[string]int{}
	for _, i := range h.rng.Perm(len(steps)) {
		if kind := kindOf(steps[i]); slices.Contains(kinds, kind) {
			chosen[kind] = i
		}
	}
	var out []string
	for _, i := range slices.Sorted(maps.Values(chosen)) {
		out = append(out, steps[i])
	}
	return out
}

// chainOfCuts cuts at each step, begun and made by turns, from the one that chance chooses. What goes on after a boot
// is cut off at the next. After one cut or none, by chance, the other command turns round.
func (h *cutHost) chainOfCuts(t *testing.T, command string, steps []string, turn func(when string)) {
	t.Helper()
	if len(steps) == 0 {
		t.Fatalf("no step to cut %q at", command)
	}
	first, turnAt, turned := h.rng.IntN(len(phases)), h.rng.IntN(len(steps)+1), 0
	for i, step := range steps {
		phase := phases[(i+first)%len(phases)]
		if !h.cut(t, fmt.Sprintf("RACKLESS_FAULT='reset:%s:%s' %s", step, phase, command)) {
			t.Fatalf("%s came to its end and never to where %s was %s", command, step, phase)
		}
		when := fmt.Sprintf("the power was cut in %q where %s was %s", command, step, phase)
		t.Log(when)
		if command == cutPrepare {
			h.bootedAsWritten(t, when)
		}
		if i == turnAt {
			turn(when)
			turned++
		}
	}
	if out, status := h.host(t, command); status != 0 && status != exitReboot {
		t.Fatalf("%s, after %d power cuts: status %d\n%s", command, len(steps), status, out)
	}
	tally.Logf(t, "the power was cut in %q at %d steps, each of another kind (%s); after %d the other command turned "+
		"round, else the same one went on", command, len(steps), strings.Join(steps, ", "), turned)
}

// cutAtEveryStep alternates between prepare and rollback, and after a cut between completing and reversing.
func (h *cutHost) cutAtEveryStep(t *testing.T) {
	t.Helper()
	cuts, turned := 0, 0
	for n := *fromStep; ; n++ {
		phase := phases[n%2]
		if !h.cut(t, fmt.Sprintf("RACKLESS_FAULT=reset:%d:%s %s", n, phase, cutPrepare)) {
			break
		}
		cuts++
		when := fmt.Sprintf("the power was cut at step %d of prepare (%s)", n, phase)
		// The phase has period two and this four, so that all are combined.
		turn := n/2%2 == 1
		if turn {
			h.rollback(t)
			h.same(t, when+": after rollback", h.before)
			turned++
		}
		h.mustPrepare(t)
		h.same(t, when+": after prepare", h.prepared)
		if h.cut(t, fmt.Sprintf("RACKLESS_FAULT=reset:%d:%s %s", n, phase, cutRollback)) {
			cuts++
			when = fmt.Sprintf("the power was cut at step %d of rollback (%s)", n, phase)
			if turn {
				h.mustPrepare(t)
				h.same(t, when+": after prepare", h.prepared)
				turned++
			}
		}
		inForce, pages := h.mustHost(t, "cat /proc/cmdline"),
			h.mustHost(t, "grep '\"hugepages\"' /var/lib/rackless/host/journal || true")
		if out := h.mustHost(t, cutRollback); h.state(t) != h.before {
			t.Logf("kernel arguments: %s\nits journal of pages: %s\nrollback: %s", inForce, pages, out)
		}
		h.same(t, when+": after rollback", h.before)
		t.Logf("%d power cuts; so far the last: %s", cuts, when)
	}
	tally.Logf(t, "the power was cut %d times; after %d of them the other command turned round", cuts, turned)
	if least := 2 * len(h.making); *fromStep == 1 && cuts < least {
		t.Errorf("there are %d steps to make and to take back", least)
	}
}

// cut returns false if the command completed. After a cut the next command reports the boot of a powered-off host, and
// synced data survived.
func (h *cutHost) cut(t *testing.T, command string) bool {
	t.Helper()
	old := h.mustHost(t, bootID+" | tee synced; sync")
	h.offAtReset(t)
	out, status := h.host(t, command)
	if status == 0 || status == exitReboot {
		return false
	}
	h.bootAsItIsOff(t, fmt.Sprintf("%s: status %d\n%s", command, status, out), old)
	return true
}

// bootedAsWritten compares the kernel's arguments with grub.cfg, and checks isolcpus.
func (h *small) bootedAsWritten(t *testing.T, when string) {
	t.Helper()
	out := strings.Split(h.mustHost(t, "grep -m 1 '^[[:space:]]*linux[[:space:]]' /boot/grub/grub.cfg; cat "+
		"/proc/cmdline /sys/devices/system/cpu/isolated"), "\n")
	want, got, isolated := strings.Fields(out[0]), strings.Fields(out[1]), out[2]
	want[1] = "BOOT_IMAGE=" + want[1]
	if diff := cmp.Diff(want[1:], got); diff != "" || strings.Contains(out[1], "isolcpus=") != (isolated != "") {
		t.Errorf("%s: CPUs %q are isolated; arguments (-grub.cfg +in force):\n%s", when, isolated, diff)
	}
}

func (e *emulatedHost) putText(t *testing.T, to, text string) {
	t.Helper()
	e.mustHost(t, fmt.Sprintf("printf %%s '%s' > %s", strings.ReplaceAll(text, "'", `'\''`), to))
}

func (e *emulatedHost) putFile(t *testing.T, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	e.putText(t, to, string(data))
}
