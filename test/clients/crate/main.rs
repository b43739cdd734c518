//! Creates a sandbox, enters it again as another process would, and prints what each step returns.
use microsandbox::{Sandbox, Volume};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    Volume::builder("data").create().await?;
    let created = Sandbox::builder("web")
        .image("sandkeep-test:busybox")
        .env("GREETING", "hello")
        .workdir("/tmp")
        .user("1000")
        .cmd(["sh", "-c", "echo $GREETING; pwd"])
        .volume("/data", |mount| mount.named("data"))
        .create()
        .await?;
    println!("created {}", created.name());

    let sandbox = Sandbox::get("web").await?.connect().await?;
    let output = sandbox.exec("sh", ["-c", "pwd; busybox id -u; echo err >&2; exit 3"]).await?;
    println!("exec {:?} {:?} {}", output.stdout()?, output.stderr()?, output.status().code);
    println!("default {:?}", sandbox.exec_default().await?.stdout()?);

    let fs = sandbox.fs();
    fs.write("/data/x", b"hello").await?;
    println!("file {:?} {}", fs.read_to_string("/data/x").await?, fs.list("/data").await?.len());

    sandbox.stop().await?;
    println!("stopped {:?}", Sandbox::get("web").await?.status_snapshot());
    Sandbox::remove("web").await?;
    Volume::remove("data").await?;
    match Sandbox::get("web").await {
        Ok(_) => println!("still there"),
        Err(error) => println!("removed: {error}"),
    }
    Ok(())
}
