use anyhow::anyhow;

use super::*;

#[test]
fn an_error_stands_above_the_last_picture_until_the_next_one() {
    let mut last = "picture 1\n".to_owned();
    let mut drawn = |update| updated(update, &mut last);
    assert_eq!(drawn(Err(anyhow!("no answer"))), "no answer\npicture 1\n");
    assert_eq!(
        drawn(Err(anyhow!("refused\nin two lines"))),
        "refused\npicture 1\n",
        "errors do not accumulate"
    );
    assert_eq!(drawn(Ok("picture 2\n".to_owned())), "picture 2\n");
    assert_eq!(drawn(Err(anyhow!("no answer"))), "no answer\npicture 2\n");
}
