export RACKLESS_CACHE=/opt/rackless/cache
