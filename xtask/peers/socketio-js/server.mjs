// A Socket.IO server on Node, for `cargo xtask bench`: each event goes to every client, with the fields ours has. Nothing is
// kept on disk. The library encodes a packet once for all clients by itself.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const { Server } = createRequire(`${process.argv[2]}/`)('socket.io');
const PIECE = 'x'.repeat(200);
const session = randomUUID();
const epoch = randomUUID();
let seq = 0;

function event(name, content) {
  seq += 1;
  return {
    event: name,
    seq,
    prev: seq - 1,
    epoch,
    event_id: `${session}.${epoch}.${seq}`,
    timestamp: new Date().toISOString(),
    session_id: session,
    content,
    metadata: { is_streaming: true, is_final: false, word_count: content.split(' ').length, step: 1 },
    show_content: content,
  };
}

const http = createServer();
// The load answers no pings; none are due while it lasts.
const io = new Server(http, { transports: ['websocket'], pingInterval: 600_000 });
io.on('connection', (socket) => {
  socket.on('go', async (pieces) => {
    for (let piece = 0; piece < pieces; piece += 1) {
      io.emit('event', event('agent.partial_answer', PIECE));
      // Lets the sockets write, as a stream of a model's words would.
      await new Promise(setImmediate);
    }
    io.emit('event', event('agent.final_answer', PIECE.repeat(pieces)));
  });
});
http.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${http.address().port}`));
