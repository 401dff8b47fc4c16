package guest

import "context"

// CurrentRecipe returns the recipe that Ensure would follow now. Its Key names the image that a lab comes up with.
func CurrentRecipe(ctx context.Context, o Options) (Recipe, error) { return currentRecipe(ctx, o) }
