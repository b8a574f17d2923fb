from .logistic import Logistic as Logistic
from .named import build as build
from .named import find as find
from .named import registry as registry
from .neural import Neural as Neural
from .quadratic import LeastSquares as LeastSquares
from .quadratic import Quadratic as Quadratic
from .softmax import Softmax as Softmax
