package change

import "context"

type seenKey struct{}

// withSeen returns a context for a stretch of work that changes nothing, in which [Seen] remembers.
func withSeen(ctx context.Context) context.Context {
	return context.WithValue(ctx, seenKey{}, map[any]any{})
}

// Seen returns what look returns. Guards that look at the machine, which can take seconds, do it by
// this: all guards that one [Survey] asks judge by one look, since a survey changes nothing. A
// guard that is asked right before its step always looks anew. key says what is looked at; it is
// compared together with its type, as keys of contexts are. An error is not remembered.
func Seen[T any](ctx context.Context, key any, look func() (T, error)) (T, error) {
	seen, _ := ctx.Value(seenKey{}).(map[any]any)
	if known, ok := seen[key].(T); ok {
		return known, nil
	}
	now, err := look()
	if err == nil && seen != nil {
		seen[key] = now
	}
	return now, err
}
