import react from '@vitejs/plugin-react';

export default {
  plugins: [react()],
  // Known before the first page, so no page is loaded twice.
  optimizeDeps: { include: ['react', 'react-dom/client', 'react/jsx-dev-runtime'], noDiscovery: true },
  cacheDir: '/tmp/vite',
  server: { host: '127.0.0.1', port: 5173, strictPort: true },
};
