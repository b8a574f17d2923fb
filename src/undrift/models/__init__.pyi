from .layout import Layout as Layout
from .layout import flatten as flatten
from .layout import unflatten as unflatten
from .named import build as build
from .named import registry as registry
from .net import Net as Net
from .net import refuse_batch_statistics as refuse_batch_statistics
from .net import with_projection as with_projection
