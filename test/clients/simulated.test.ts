import { describeClients, testSessions } from '../support/clients.js';
import { startTestService } from '../support/service.js';

describeClients('the official clients with the simulated runtime', () => {
  testSessions('simulated', () => startTestService({ simulated: { startMs: 5, stopMs: 5 } }));
});
