import { testClients } from '../support/clients.js';
import { startTestService } from '../support/service.js';

testClients('the official clients with the simulated runtime', 'simulated', () =>
  startTestService({ simulated: { startMs: 5, stopMs: 5 } }),
);
