// The test server on socket.io. The folder that holds node_modules is the first argument.
const { createRequire } = require('module');
const { Server } = createRequire(process.argv[2] + '/')('socket.io');
const http = require('http').createServer((request, response) => {
  response.statusCode = 404;
  response.end();
});
const io = new Server(http, { maxHttpBufferSize: 1e6, pingInterval: 25000, pingTimeout: 20000 });

function events(socket) {
  socket.on('echo', (...args) => args.pop()(...args));
  socket.on('swap', (one, two, ack) => ack(two, { deep: one }));
  socket.on('ask', async (...args) => {
    const ack = args.pop();
    socket.timeout(5000).emit('question', ...args, (error, ...answer) => ack(...(error ? ['none'] : answer)));
  });
  socket.on('silent', () => {});
  socket.on('later', (ms, ack) => setTimeout(() => ack('late'), ms));
  socket.on('tell', (text) => socket.emit('told', text));
  socket.on('kick', () => socket.disconnect(false));
  socket.on('drop', () => socket.conn.close());
}
io.on('connection', events);
io.of('/locked').use((socket, next) => {
  if (socket.handshake.auth.token === 'right') return next();
  const refusal = new Error('wrong token');
  refusal.data = { code: 401 };
  next(refusal);
});
io.of('/locked').on('connection', events);
http.listen(0, '127.0.0.1', () => console.log('listening', http.address().port));
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
