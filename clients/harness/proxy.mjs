// A bad line for tests in JavaScript: a TCP proxy that cuts what is open, or every connection after so many bytes.

import net from "node:net";

/** Starts a proxy to `port` on loopback, or to wherever `port()` says. `planFor(n)` may give `{ cutAfter }` for the n-th connection, from 0. */
export async function startProxy(port, planFor = () => ({})) {
  const open = new Set();
  let accepted = 0;
  const server = net.createServer((client) => {
    const { cutAfter = Infinity } = planFor(accepted++) ?? {};
    const upstream = net.connect(typeof port === "function" ? port() : port, "127.0.0.1");
    const pair = { cut: () => [client, upstream].forEach((socket) => socket.resetAndDestroy()) };
    open.add(pair);
    let passed = 0;
    client.on("data", (bytes) => upstream.write(bytes));
    upstream.on("data", (bytes) => {
      const room = cutAfter - passed;
      passed += bytes.length;
      client.write(room >= bytes.length ? bytes : bytes.subarray(0, Math.max(0, room)));
      if (passed >= cutAfter) client.end(() => pair.cut());
    });
    for (const [socket, other] of [[client, upstream], [upstream, client]]) {
      socket.on("error", () => {});
      socket.on("close", () => {
        other.destroy();
        open.delete(pair);
      });
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: server.address().port,
    accepted: () => accepted,
    cutAll: () => [...open].forEach((pair) => pair.cut()),
    stop: () => {
      [...open].forEach((pair) => pair.cut());
      server.close();
    },
  };
}
