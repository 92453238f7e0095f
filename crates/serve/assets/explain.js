// The page of one kind of fault is all there when it arrives.

import "./shell.js";
