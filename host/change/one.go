package change

import (
	"context"
	"fmt"
)

// MakeOne makes a single step, and leaves all other entries of the journal as they are. If the op is in the journal
// already, another operation has made it, and MakeOne refuses.
func MakeOne(ctx context.Context, s *System, j *Journal, step Step) error {
	if j.find(keyOf(step.Op)) != nil {
		return fmt.Errorf("%s %s is in the journal already: rackless rollback undoes it", step.Op.Kind(),
			step.Op.Subject())
	}
	r := resultOf(step)
	return makeStep(ctx, s, j, &step, &r, func(Result) {})
}

// UndoOne undoes the op that MakeOne has made, even if making it failed halfway. It does nothing if the journal has no
// such op.
func UndoOne(ctx context.Context, s *System, j *Journal, op Op) error {
	e := j.find(keyOf(op))
	if e == nil {
		return nil
	}
	if _, err := restore(ctx, s, j, e, false); err != nil {
		return fmt.Errorf("%s remains (%s %s): %w", e.What, op.Kind(), op.Subject(), err)
	}
	return nil
}
