import type { ServiceContext } from '../context.js';
import type { Certificate } from '../http/tls/certificate.js';
import { measureNetwork } from './measure-network.js';
import { measureUse } from './measure-use.js';
import { gauge, type Sample } from './samples.js';

/** The state that this process alone knows. */
export function measureProcess(context: ServiceContext, byOrg: boolean): Sample[] {
  const { pool, requests, runtime, use, network, disk, certificate, settings, walWaitingSecs } = context;
  const pools = { worker: pool, requests: requests.watched };
  return [
    ...Object.entries(pools).flatMap(([name, { totalCount, idleCount, waitingCount }]) => {
      const help = 'Connections of the pools to the database. Waiting: users without a connection.';
      const count = (state: string, value: number) =>
        gauge('sandkeep_pool_connections', help, value, { pool: name, state });
      return [
        count('idle', idleCount),
        count('used', totalCount - idleCount),
        count('waiting', waitingCount),
      ];
    }),
    gauge(
      'sandkeep_runtime_up',
      '1: the engine of this process answers.',
      runtime.engine === undefined || runtime.engine.state === 'up' ? 1 : 0,
      { runtime: runtime.name },
    ),
    gauge(
      'sandkeep_backup_interval_seconds',
      'Interval of scheduled backups. 0: none are made.',
      settings.backupEveryMs / 1_000,
    ),
    ...(walWaitingSecs
      ? [
          gauge(
            'sandkeep_wal_archive_waiting_seconds',
            'Age of the oldest segment of the log that is not archived yet.',
            walWaitingSecs(),
          ),
        ]
      : []),
    ...(use.isSampling ? [...measureUse(use, byOrg), ...measureNetwork(network)] : []),
    ...(certificate ? measureCertificate(certificate) : []),
    ...disk.measured().flatMap(({ place, sizeBytes, freeBytes, reserveBytes }) => [
      gauge('sandkeep_disk_size_bytes', 'Size of a disk of the service.', sizeBytes, { place }),
      gauge('sandkeep_disk_free_bytes', 'Free room of it.', freeBytes, { place }),
      gauge('sandkeep_disk_reserve_bytes', 'Room that stays free for the database.', reserveBytes, {
        place,
      }),
    ]),
  ];
}

function measureCertificate({ pair, isRefused }: Certificate): Sample[] {
  const end = 'End of the TLS certificate, in seconds since 1970.';
  const refused = '1: the files have a TLS certificate that cannot be served; the previous one is.';
  return [
    gauge('sandkeep_tls_certificate_expiry_timestamp_seconds', end, pair.expiresAt / 1_000),
    gauge('sandkeep_tls_renewal_refused', refused, isRefused ? 1 : 0),
  ];
}
