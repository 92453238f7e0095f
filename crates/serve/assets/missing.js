// An address at which there is no page.

import "./shell.js";
